"""Parts: what verifiers, judges and counters say about one attempt, each with how it came about.

Invariant: a part has a value exactly where its outcome is OK, and that value is finite and in [0, 1]. Everything else that
can happen to a part has a name and no number, so that nothing downstream can average a failure.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class PartOutcome(StrEnum):
    """How a part came about; the later ones are the graver."""

    OK = "ok"
    "It was measured."
    ABSTAIN = "abstain"
    "Who was asked declined: not applicable, not sure enough, refused, or not asked because the budget is spent."
    PARSE = "parse"
    "An answer came, and it was none that the protocol allows."
    INFRA = "infra"
    "No answer came: outage, timeout, a broken connection or process."
    VIOLATED = "violated"
    "A hard constraint is broken: an injection, a leaked secret, an escape."

    @property
    def gravity(self) -> int:
        """0 for OK, rising."""
        return _GRAVITY[self]


_GRAVITY = {outcome: rank for rank, outcome in enumerate(PartOutcome)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One measured or failed part of a reward.

    Raises:
        ValueError: a value that is not finite or not in [0, 1], a value beside a failure, or OK without one.
    """

    name: str
    outcome: PartOutcome
    value: float | None = None
    "In [0, 1] where the outcome is OK, else None."
    reason: str = ""
    "One sentence for people: the judge's reason, or what failed."

    def __post_init__(self) -> None:
        if (self.outcome is PartOutcome.OK) != (self.value is not None):
            raise ValueError(
                f"part {self.name!r} has outcome {self.outcome} and value {self.value!r}; a value stands beside ok alone"
            )
        if self.value is not None and not (
            isinstance(self.value, int | float)
            and not isinstance(self.value, bool)
            and math.isfinite(self.value)
            and 0.0 <= self.value <= 1.0
        ):
            raise ValueError(
                f"part {self.name!r} has value {self.value!r}, expected a finite number in [0, 1]; scale it where it is made, "
                "or report it as a parse failure"
            )

    @classmethod
    def ok(cls, name: str, value: float, reason: str = "") -> "Part":
        """A part that was measured."""
        return cls(name=name, outcome=PartOutcome.OK, value=value, reason=reason)

    @classmethod
    def failed(cls, name: str, outcome: PartOutcome, reason: str) -> "Part":
        """A part without a value."""
        return cls(name=name, outcome=outcome, reason=reason)


def by_name(parts: Iterable[Part]) -> Mapping[str, Part]:
    """Parts under their names.

    Raises:
        ValueError: a name stands twice.
    """
    named: dict[str, Part] = {}
    for part in parts:
        if part.name in named:
            raise ValueError(f"part {part.name!r} stands twice; every part of an attempt has a name of its own")
        named[part.name] = part
    return named


def gravest(outcomes: Iterable[PartOutcome]) -> PartOutcome:
    """The gravest of some outcomes, OK where there are none."""
    return max(outcomes, key=lambda outcome: outcome.gravity, default=PartOutcome.OK)
