"""Rewards: what a rule makes of an attempt's parts, with everything that led to it.

Invariant: the value is None exactly where the outcome is neither OK nor VIOLATED; a violated reward has its rule's fixed
floor, which nothing was averaged into.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coharness.reward.algebra.part import Part, PartOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The reward of one attempt."""

    value: float | None
    outcome: PartOutcome
    parts: Mapping[str, Part]
    "All parts that were given, used by the rule or not."
    missing: tuple[str, ...] = ()
    "Parts that the rule wanted and that have no value."
    violated: tuple[str, ...] = ()
    "Hard floors that were broken, by part."
    penalties: Mapping[str, float] = field(default_factory=dict)
    "Part -> what its cost took off the value."

    def __post_init__(self) -> None:
        if (self.value is None) == (self.outcome in (PartOutcome.OK, PartOutcome.VIOLATED)):
            raise ValueError(
                f"a reward with outcome {self.outcome} has value {self.value!r}; only ok and violated have one"
            )
