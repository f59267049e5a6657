"""Criteria that have stopped saying anything: met by almost everyone, met by no one, or the same within every group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coharness.reward.algebra.part import Part
from coharness.stats.interval import Interval
from coharness.stats.proportions import wilson

SATURATED_ABOVE = 0.95
MET_ABOVE = 0.9
"""Value from which a criterion counts as met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionState:
    """One criterion over a window of groups."""

    name: str
    met: Interval
    "Share of attempts that meet it."
    collapsed_groups: float
    "Share of groups in which all attempts got the same value; such a group trains nothing on it."
    num_failed: int
    "Attempts whose part has no value."

    @property
    def is_saturated(self) -> bool:
        """Whether surely more than 95 % meet it: retire it, or make it harder."""
        return self.met.low > SATURATED_ABOVE

    @property
    def is_dead(self) -> bool:
        """Whether surely fewer than 5 % meet it and no group tells attempts apart by it."""
        return self.met.high < 1 - SATURATED_ABOVE and self.collapsed_groups > SATURATED_ABOVE


def criterion_states(groups: Sequence[Sequence[Mapping[str, Part]]]) -> list[CriterionState]:
    """State of each criterion over groups of attempts, each a mapping of part names to parts; in name order."""
    names = sorted({name for group in groups for attempt in group for name in attempt})
    states = []
    for name in names:
        met = scored = failed = collapsed = compared = 0
        for group in groups:
            parts = [attempt[name] for attempt in group if name in attempt]
            values = [part.value for part in parts if part.value is not None]
            failed += len(parts) - len(values)
            scored += len(values)
            met += sum(value >= MET_ABOVE for value in values)
            if len(values) > 1:
                compared += 1
                collapsed += max(values) - min(values) < 1e-9
        if scored:
            share = collapsed / compared if compared else 0.0
            states.append(CriterionState(name=name, met=wilson(met, scored), collapsed_groups=share, num_failed=failed))
    return states
