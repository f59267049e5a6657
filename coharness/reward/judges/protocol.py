"""What a worker, a service or an adapter needs of a judge, and a worker of all its versions."""

from collections.abc import Sequence
from typing import Protocol

from coharness.records.ids import JudgeId
from coharness.reward.algebra.part import Part

SCORE_PART = "judge/score"
"""The part that is a judge's whole opinion; monitors hold it against the verifier."""


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


class JudgeShelf(Protocol):
    """The versions of a run's judge; a worker asks for the one that an item names."""

    def of(self, judge: JudgeId) -> AttemptJudge:
        """The judge of this version.

        Raises:
            ConfigError: there is no such version here.
        """
        ...

    def close(self) -> None:
        """Close all that it opened."""
        ...


class OneJudge:
    """A shelf of a single judge whose versions are not the run's business, such as one behind an endpoint."""

    def __init__(self, judge: AttemptJudge) -> None:
        self._judge = judge

    def of(self, judge: JudgeId) -> AttemptJudge:
        """The judge, whatever its version is called."""
        return self._judge

    def close(self) -> None:
        """Close the judge."""
        self._judge.close()
