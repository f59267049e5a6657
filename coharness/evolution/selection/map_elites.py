"""MAP-Elites for members that train: reports fill an archive, and members go on from its elites.

A member that reports is offered to the archive. Where it took or holds its cell it goes on; else it goes on from an elite
drawn uniformly. With probability `retest` an elite is taken up again with its own setting instead of a moved one: what it
then reports is fresh evidence, so that an elite that was merely lucky loses its cell.
"""

from dataclasses import dataclass

import numpy as np

from coharness.evolution.selection.archive import Grid
from coharness.evolution.selection.contract import Change, Genes, Individual, Population, clone, pick


@dataclass(frozen=True, slots=True, kw_only=True)
class MapElites:
    """Go on from the elites of a grid."""

    grid: Grid
    certainty: float = 0.6
    "Least posterior probability that a newcomer is better than the elite it replaces."
    retest: float = 0.1
    "Share of continuations that keep the elite's own setting."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`; reads the archive after `remember` has seen the report."""
        me = population.member(ready)
        draw = float(rng.random())
        holds = any(elite.of == ready and elite.work == me.work for elite in population.elites)
        if not population.elites or not me.is_known or holds:
            return None
        elite = pick(population.elites, rng)
        genes = Genes.KEEP if draw < self.retest else Genes.EXPLORE
        return clone(
            ready, elite.name, f"goes on from the elite of cell {self.grid.cell(elite.descriptor)}", genes=genes
        )

    def remember(self, elites: tuple[Individual, ...], newcomer: Individual) -> tuple[Individual, ...]:
        """The archive with the newcomer; an elite that it retested is withdrawn where both are of one cell."""
        if not newcomer.descriptor or not newcomer.is_known:
            return elites
        cell = self.grid.cell(newcomer.descriptor)
        standing = tuple(
            elite for elite in elites if elite.name != newcomer.retests or self.grid.cell(elite.descriptor) != cell
        )
        return self.grid.insert(standing, newcomer, self.certainty)[0]
