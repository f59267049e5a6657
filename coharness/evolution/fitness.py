"""Fitness of a pairing: the mean of its cell posteriors under one fixed evaluation mix, never a raw success rate.

Every pairing is read over the same cells with the same weights, so a pairing cannot look good by having met easy tasks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from scipy import special

from coharness.evolution.evidence import Cell, EvidenceTable
from coharness.records.ids import PolicyId
from coharness.stats.beta import BetaEvidence, mean_of_cells, probability_mean_greater


class Judged(Protocol):
    """What selection reads of a member's worth: a posterior over its success, whatever the evidence behind it."""

    @property
    def mean(self) -> float:
        """Posterior mean; higher is better."""
        ...

    @property
    def variance(self) -> float:
        """Posterior variance of that mean."""
        ...

    @property
    def num_empty(self) -> int:
        """Parts without evidence; such a member is neither replaced nor copied."""
        ...

    def probability_above(self, other: Self) -> float:
        """Posterior probability that this one is better."""
        ...

    def quantile(self, q: float) -> float:
        """The value that the posterior lies below with probability `q`; a donor read at a low one is not copied for its luck."""
        ...


def normal_quantile(mean: float, variance: float, q: float) -> float:
    """The q-quantile of a normal posterior; the mean where it has no spread.

    Raises:
        ValueError: `q` is not inside (0, 1).
    """
    if not 0 < q < 1:
        raise ValueError(f"quantile: got {q}, expected inside (0, 1), such as 0.1 for a donor's lower bound")
    return mean if variance == 0 else mean + math.sqrt(variance) * float(special.ndtri(q))


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

    def quantile(self, q: float) -> float:
        """The posterior's q-quantile, by normal approximation; see `Judged.quantile`."""
        return normal_quantile(self.mean, self.variance, q)


def fitness(table: EvidenceTable, policy: PolicyId, step: int, cells: Sequence[Cell]) -> Fitness:
    """Read a pairing's fitness; `cells` is the mix compiled with the pairing's harness, one cell an entry."""
    evidence = tuple(table.read(policy, cell, step) for cell in cells)
    mean, variance = mean_of_cells(evidence)
    return Fitness(mean=mean, variance=variance, cells=evidence, num_empty=sum(e.effective_n < 1.0 for e in evidence))
