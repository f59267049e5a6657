"""The gap between the judge that trains and a judge of another family that does not: what is learnt about the one judge alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from coharness.stats.interval import Interval
from coharness.stats.paired import paired_t_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyGap:
    """Training judge minus held-out judge, on the same rollouts."""

    before: Interval
    "In the warm-up window: judges differ in scale, so a level gap says nothing."
    now: Interval

    @property
    def growth(self) -> float:
        """How much the gap has grown."""
        return self.now.value - self.before.value

    def alarms(self, tolerated: float = 0.05) -> bool:
        """Whether the gap has grown beyond doubt by more than is tolerated: the intervals lie that far apart."""
        return self.now.low - self.before.high > tolerated


def family_gap(
    training: tuple[Sequence[float], Sequence[float]],
    held_out: tuple[Sequence[float], Sequence[float]],
    *,
    level: float = 0.95,
) -> FamilyGap:
    """The gap in a warm-up window and now.

    Args:
        training: scores by the training judge, (warm-up, now).
        held_out: scores of the same rollouts by the held-out judge.
        level: of both intervals.

    Raises:
        ValueError: scores that do not match, or fewer than two rollouts in a window.
    """
    windows = []
    for mine, other in zip(training, held_out, strict=True):
        windows.append(paired_t_interval([a - b for a, b in zip(mine, other, strict=True)], level))
    return FamilyGap(before=windows[0], now=windows[1])
