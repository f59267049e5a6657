"""Owns `Interval`, the one shape in which every estimate with its uncertainty leaves this package.

Invariants: all four numbers are finite, low <= value <= high, and 0 < level < 1. Reports print it, gates and studies
compare it with a bar; nothing here computes one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def check_level(level: float) -> None:
    """Raise ValueError unless `level` is a confidence level strictly between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: got {level!r}, expected a confidence level in (0, 1), such as 0.95")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A point estimate between the two ends of its two-sided confidence interval.

    Raises ValueError when a number is not finite or when low <= value <= high does not hold.
    """

    low: float
    value: float
    """The point estimate, not necessarily the middle."""
    high: float
    level: float
    """Two-sided coverage, 0.95 for a 95 % interval."""

    def __post_init__(self) -> None:
        check_level(self.level)
        if not all(math.isfinite(number) for number in (self.low, self.value, self.high)):
            raise ValueError(f"Interval: got {self.low!r}, {self.value!r}, {self.high!r}, expected finite numbers")
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"Interval: got low {self.low!r}, value {self.value!r}, high {self.high!r}, expected them in that order"
            )

    @classmethod
    def containing(cls, value: float, low: float, high: float, level: float) -> Interval:
        """Return the interval [low, high] widened, where needed, to hold its own point estimate.

        Rounding, and methods that shrink towards a centre, can leave the estimate just outside. Widening never
        lowers the coverage.
        """
        return cls(low=min(low, value), value=value, high=max(high, value), level=level)

    def excludes(self, number: float) -> bool:
        """Return whether `number` lies strictly outside the interval."""
        return not self.low <= number <= self.high

    def __str__(self) -> str:
        """Return for example `0.031 [-0.010, 0.072] (95%)`."""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] ({100 * self.level:g}%)"
