"""Truncation: a member of the lowest quantile copies one of the highest (population based training; Jaderberg et al., 2017).

Losers are read at an upper bound and donors at a lower one, so that neither a run of bad luck nor one of good luck decides.
With both bounds at the median and fitness from the last report alone, it is what Ray Tune does.

A copy that has not reported yet keeps the place in the lowest quantile of the member that it replaced. Otherwise the next
lowest would move up into it at once, and within one interval most of the population would be copied.
"""

import math
from dataclasses import dataclass

import numpy as np

from coharness.evolution.selection.contract import Change, Forgetful, Genes, Individual, Population, clone, pick


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation(Forgetful):
    """Copy a member of the highest quantile, drawn uniformly, from inside the lowest one."""

    quantile: float = 0.2
    "Share of the members on either side; rounded up, at most half."
    bound: float = 0.1
    "Posterior quantile that donors are read at; losers are read at one minus it."
    genes: Genes = Genes.EXPLORE

    def __post_init__(self) -> None:
        if not 0 < self.quantile <= 0.5:
            raise ValueError(f"Truncation.quantile: got {self.quantile}, expected above 0 and at most 0.5")
        if not 0 < self.bound <= 0.5:
            raise ValueError(
                f"Truncation.bound: got {self.bound}, expected above 0 and at most 0.5, which reads the means"
            )

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        known = [member for member in population.members if member.is_known]
        num = min(math.ceil(len(known) * self.quantile), len(known) // 2)
        settled = [member for member in known if not member.is_fresh]
        places = num - (len(known) - len(settled))
        if places <= 0 or ready not in {member.name for member in self._lowest(settled, places)}:
            return None
        highest = sorted(settled, key=lambda m: m.fitness.quantile(self.bound))[-num:]
        donors = [member for member in highest if member.name != ready]
        if not donors:
            return None
        donor = pick(donors, rng)
        if donor.fitness.mean <= population.member(ready).fitness.mean:
            return None
        return clone(
            ready, donor.name, f"lowest {num} of {len(known)}; {donor.name} is of the highest", genes=self.genes
        )

    def _lowest(self, known: list[Individual], num: int) -> list[Individual]:
        return sorted(known, key=lambda m: m.fitness.quantile(1 - self.bound))[:num]
