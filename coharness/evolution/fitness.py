"""Fitness of a pairing: the mean of its cell posteriors under one fixed evaluation mix, never a raw success rate.

Every pairing is read over the same cells with the same weights, so a pairing cannot look good by having met easy tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coharness.evolution.evidence import Cell, EvidenceTable
from coharness.records.ids import PolicyId
from coharness.stats.beta import BetaEvidence, mean_of_cells, probability_mean_greater


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """A posterior over a pairing's success under the evaluation mix."""

    mean: float
    variance: float
    cells: tuple[BetaEvidence, ...]
    num_empty: int
    "Cells with less than one effective observation; an exploit waits until there are none."

    def probability_above(self, other: "Fitness") -> float:
        """Posterior probability that this one's success is higher."""
        return probability_mean_greater(self.cells, other.cells)


def fitness(table: EvidenceTable, policy: PolicyId, step: int, cells: Sequence[Cell]) -> Fitness:
    """Read a pairing's fitness; `cells` is the mix compiled with the pairing's harness, one cell an entry."""
    evidence = tuple(table.read(policy, cell, step) for cell in cells)
    mean, variance = mean_of_cells(evidence)
    return Fitness(mean=mean, variance=variance, cells=evidence, num_empty=sum(e.effective_n < 1.0 for e in evidence))
