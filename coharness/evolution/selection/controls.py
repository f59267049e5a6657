"""Control arms: what a search must beat before it may say that it helped.

none              everybody keeps the setting that it started with
random search     as none, and a trial that reached its length begins anew with a new draw
mutation only     settings move at every report, nobody is copied
selection only    somebody else's rule, with settings passed on unchanged
"""

from dataclasses import dataclass, replace

import numpy as np

from coharness.evolution.selection.contract import Change, Forgetful, Genes, Individual, Population, Selector, clone


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSelection(Forgetful):
    """Nothing ever changes."""

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSearch(Forgetful):
    """Begin anew from the initial weights with a draw from the prior, whenever a trial has done its work."""

    trial_work: float
    "Work of one trial."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        if population.member(ready).age < self.trial_work:
            return None
        return Change(member=ready, parents=(), weights=(), genes=Genes.DRAW, why="the trial is over")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationOnly(Forgetful):
    """Move the member's own setting at every report."""

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        return clone(ready, ready, "mutation alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOnly:
    """Another rule's choices, with settings passed on as they are; only who begins anew draws one."""

    inner: Selector
    genes: Genes = Genes.KEEP
    "KEEP passes the donor's setting on with its weights, OWN lets the member keep its own."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        change = self.inner.choose(population, ready, rng)
        if change is None or not change.parents:
            return change
        return replace(change, genes=self.genes, hyperparameters=None)

    def remember(self, elites: tuple[Individual, ...], newcomer: Individual) -> tuple[Individual, ...]:
        """The inner rule's archive."""
        return self.inner.remember(elites, newcomer)
