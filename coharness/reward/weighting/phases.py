"""Weights by phase of training, written beforehand: say, format and effort first, then correctness, then robustness and cost.

until  weights                      at progress .30 with a blend of .1, halfway from the first to the second
.3     {format: 2, effort: 1}
1      {correct: 3, brief: 1}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coharness.reward.weighting.simplex import normalised


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of training with weights of its own."""

    name: str
    until: float
    "Share of the budget at which it ends, in (0, 1]."
    weights: Mapping[str, float]
    "Criterion -> weight; scaled to sum to 1."


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSchedule:
    """Phases one after the other.

    Raises:
        ValueError: they do not rise to 1, do not name the same criteria, or a blend reaches beyond a phase.
    """

    phases: tuple[Phase, ...]
    blend: float = 0.05
    "Share of the budget over which one phase's weights turn into the next one's, around its end."

    def __post_init__(self) -> None:
        ends = [phase.until for phase in self.phases]
        lengths = [b - a for a, b in zip([0.0, *ends], ends, strict=False)]
        if not ends or ends[-1] != 1.0 or min(lengths) <= 0:
            raise ValueError(f"phases end at {ends}, expected rising shares of the budget of which the last is 1")
        if not 0 <= self.blend <= min(lengths):
            raise ValueError(f"blend is {self.blend!r}, expected 0 up to the shortest phase, {min(lengths):g}")
        names = {frozenset(phase.weights) for phase in self.phases}
        if len(names) != 1:
            raise ValueError(
                f"phases weigh different criteria: {sorted(map(sorted, names))}; give a weight of 0 to what does not count in one"
            )

    def at(self, progress: float) -> dict[str, float]:
        """Criterion -> weight when this share of the budget is spent; they sum to 1.

        Raises:
            ValueError: progress outside [0, 1].
        """
        if not 0.0 <= progress <= 1.0:
            raise ValueError(f"progress is {progress!r}, expected a share of the budget in [0, 1]")
        number = next(n for n, phase in enumerate(self.phases) if progress <= phase.until)
        own = normalised(self.phases[number].weights)
        half = self.blend / 2
        for other, edge in self._edges(number):
            if half and abs(progress - edge) < half:
                share = 0.5 - abs(progress - edge) / self.blend
                theirs = normalised(self.phases[other].weights)
                return {name: (1 - share) * value + share * theirs[name] for name, value in own.items()}
        return own

    def _edges(self, number: int) -> Sequence[tuple[int, float]]:
        """The neighbouring phases with the place where each meets this one."""
        before = [(number - 1, self.phases[number - 1].until)] if number else []
        after = [(number + 1, self.phases[number].until)] if number + 1 < len(self.phases) else []
        return [*before, *after]
