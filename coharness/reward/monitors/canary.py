"""Canaries: items whose score is known, mixed into every batch at a fixed rate, so that a judge is tested where it works.

Known-bad items must score below .3, known-good ones above .7, and twins (an item and its copy with flattery, a fake verdict or a
changed order) must agree. A canary that could not be scored is counted apart: an outage is neither a pass nor a failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coharness.records.ids import hash_unit
from coharness.reward.algebra.part import Part
from coharness.stats.interval import Interval
from coharness.stats.proportions import clopper_pearson

BAD_BELOW = 0.3
GOOD_ABOVE = 0.7
TWIN_WITHIN = 0.05


class CanaryKind(StrEnum):
    """What is known of a canary."""

    BAD = "bad"
    GOOD = "good"
    TWIN = "twin"
    "Must score like `twin_of`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One known item."""

    name: str
    kind: CanaryKind
    question: str
    answer: str
    twin_of: str | None = None
    "Name of the canary that a twin is a copy of."

    def __post_init__(self) -> None:
        if (self.kind is CanaryKind.TWIN) != (self.twin_of is not None):
            raise ValueError(
                f"canary {self.name!r} is {self.kind} and twin_of={self.twin_of!r}; a twin names its original"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReport:
    """How a judge did on canaries."""

    num_scored: int
    broken: tuple[str, ...]
    "Names of canaries whose score is on the wrong side."
    unscored: tuple[str, ...]
    "Names of those that could not be scored."

    @property
    def rate(self) -> Interval | None:
        """Share of broken ones with its exact interval; None where nothing was scored."""
        return clopper_pearson(len(self.broken), self.num_scored) if self.num_scored else None

    def alarms(self, allowed: float = 0.1) -> bool:
        """Whether more than the allowed share is broken beyond doubt."""
        rate = self.rate
        return rate is not None and rate.low > allowed


def check_canaries(canaries: Sequence[Canary], scores: Mapping[str, Part]) -> CanaryReport:
    """Hold scores of canaries, by name, against what is known.

    Raises:
        ValueError: a twin whose original is not among the canaries.
    """
    names = {canary.name for canary in canaries}
    broken, unscored = [], []
    for canary in canaries:
        if canary.twin_of is not None and canary.twin_of not in names:
            raise ValueError(f"canary {canary.name!r} is a twin of {canary.twin_of!r}, which is not among them")
        value = _value(scores, canary.name)
        other = _value(scores, canary.twin_of) if canary.twin_of else 0.0
        if value is None or other is None:
            unscored.append(canary.name)
            continue
        match canary.kind:
            case CanaryKind.BAD:
                fine = value < BAD_BELOW
            case CanaryKind.GOOD:
                fine = value > GOOD_ABOVE
            case CanaryKind.TWIN:
                fine = abs(value - other) <= TWIN_WITHIN
        if not fine:
            broken.append(canary.name)
    return CanaryReport(num_scored=len(canaries) - len(unscored), broken=tuple(broken), unscored=tuple(unscored))


def due_canaries(canaries: Sequence[Canary], batch: str, *, rate: float, batch_size: int) -> list[Canary]:
    """Canaries to mix into a batch, a pure function of its name: about `rate` of its size, a twin never without its original."""
    wanted = rate * batch_size
    drawn: list[Canary] = []
    whole = {canary.name: canary for canary in canaries}
    share = wanted / max(len(canaries), 1)
    for canary in canaries:
        if hash_unit("canary", batch, canary.name) < share:
            for one in ([whole[canary.twin_of]] if canary.twin_of in whole else []) + [canary]:
                if one not in drawn:
                    drawn.append(one)
    return drawn


def _value(scores: Mapping[str, Part], name: str) -> float | None:
    part = scores.get(name)
    return None if part is None else part.value
