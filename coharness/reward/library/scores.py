"""Scores that a judge writes as an array, as VIEScore's prompts ask for them (Ku et al., 2024)."""

import json
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayScores:
    """Four numbers from 0 to 10."""

    values: tuple[float, float, float, float]

    @property
    def mean(self) -> float:
        """The aggregate."""
        return sum(self.values) / len(self.values)


def viescore(text: str) -> ArrayScores | None:
    """Read an array of exactly four numbers from 0 to 10; anything else is None, never a number."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, list) or len(data) != 4:
        return None
    numbers = [float(v) for v in data if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
    if len(numbers) != 4 or not all(0.0 <= number <= 10.0 for number in numbers):
        return None
    return ArrayScores(values=(numbers[0], numbers[1], numbers[2], numbers[3]))
