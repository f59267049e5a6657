"""What is true of every selection rule: whom it may touch, how often, and who may be copied.

`Ruled` wraps a rule; it never changes what the rule prefers among what is allowed.

Evaluation-time bias. Members that report more often are asked about more often, so a gene that makes reports quick (short
answers, small models) is replaced, or multiplies, at another rate than one that makes them slow, whatever it is worth
(Scott & De Jong, 2015). With `equal_turns` a turn counts with probability duration / longest duration: all members have
turns at the rate of the slowest.
"""

from dataclasses import dataclass, replace

import numpy as np

from coharness.evolution.selection.contract import Change, Genes, Individual, Population, Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled:
    """A selection rule under the rules of the house."""

    inner: Selector
    newborn_work: float = 0.0
    "A member that has done less work since it was born goes on as it is."
    clone_cap: float = 1.0
    "Largest share of the members that may be of one clan; two members may always be."
    immigrants_below: float = 0.0
    "Below this effective population size, as a share of the members, some changes become immigrants; 0 for never."
    immigrant_rate: float = 0.25
    "Share of changes that become immigrants then: fresh weights and a draw from the prior."
    equal_turns: bool = False
    "Give quick and slow members turns at the same rate; see the module."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        me = population.member(ready)
        # Both draws come first, so that whether one is needed does not shift the inner rule's stream.
        turn, fate = float(rng.random()), float(rng.random())
        if me.is_busy or me.age < self.newborn_work:
            return None
        if self.equal_turns and turn >= turn_probability(me, population):
            return None
        change = self.inner.choose(population, ready, rng)
        if change is None or not change.copies:
            return change
        num = len(population.members)
        if fate < self.immigrant_rate and num_clans(population) < self.immigrants_below * num:
            return Change(
                member=ready, parents=(), weights=(), genes=Genes.DRAW, why="an immigrant: few founders are left"
            )
        full = self._full_clans(population, me)
        if not any(parent.clan in full for parent in _named(population, change.parents) if parent.name != ready):
            return change
        allowed = tuple(m for m in population.members if m.name == ready or m.clan not in full)
        elites = tuple(m for m in population.elites if m.clan not in full)
        change = self.inner.choose(replace(population, members=allowed, elites=elites), ready, rng)
        return change

    def remember(self, elites: tuple[Individual, ...], newcomer: Individual) -> tuple[Individual, ...]:
        """The inner rule's archive."""
        return self.inner.remember(elites, newcomer)

    def _full_clans(self, population: Population, me: Individual) -> set[str]:
        """Clans that one more copy would make too large."""
        num = len(population.members)
        limit = max(self.clone_cap * num, min(2, num))
        sizes: dict[str, int] = {}
        for member in population.members:
            sizes[member.clan] = sizes.get(member.clan, 0) + 1
        return {clan for clan, size in sizes.items() if size + (clan != me.clan) > limit}


def turn_probability(me: Individual, population: Population) -> float:
    """How often a member's turn should count so that all have turns at the rate of the slowest; 1 where nothing was timed."""
    longest = max(member.duration_s for member in population.members)
    return 1.0 if longest <= 0 or me.duration_s <= 0 else me.duration_s / longest


def num_clans(population: Population) -> float:
    """Effective number of clans among the members: 1 / sum of their squared shares."""
    sizes: dict[str, int] = {}
    for member in population.members:
        sizes[member.clan] = sizes.get(member.clan, 0) + 1
    return len(population.members) ** 2 / sum(size * size for size in sizes.values())


def _named(population: Population, names: tuple[str, ...]) -> list[Individual]:
    return [member for member in (*population.members, *population.elites) if member.name in names]
