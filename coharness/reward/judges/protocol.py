"""What a worker, a service or an adapter needs of a judge."""

from collections.abc import Sequence
from typing import Protocol

from coharness.reward.algebra.part import Part


class AttemptJudge(Protocol):
    """Scores completions of one question; a failure is a part without a value, never an exception."""

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the parts that each completion gets, all beginning with `judge/`."""
        ...

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        """Parts of each completion, in order; every one has all of `part_names`."""
        ...

    def close(self) -> None:
        """Release connections and files."""
        ...
