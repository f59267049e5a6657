"""Several objectives, steady state: who stands last by front and crowding gives way (NSGA-II; Deb et al., 2002).

The generational algorithm sorts parents and children together and cuts the tail. Here nobody waits: when a member's turn
comes and it stands last by (front, crowding), it is replaced. Members of the first front are never replaced, whatever their
crowding.
"""

from dataclasses import dataclass

import numpy as np

from coharness.evolution.selection.contract import Change, Forgetful, Individual, Population, clone
from coharness.evolution.selection.pareto import crowding, fronts


@dataclass(frozen=True, slots=True, kw_only=True)
class Nsga2(Forgetful):
    """Replace members that are dominated, from the last front on."""

    z: float = 1.64
    "Standard errors of a difference that count as a tie."
    share: float = 0.34
    "Share of the members, from the last on by front and crowding, that may be replaced; at least one."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`; members without objectives are left alone."""
        known = [member for member in population.members if member.is_known and member.objectives]
        if len(known) < 2:
            return None
        rank = ranks(known, self.z)
        if ready not in rank or rank[ready][0] == 0:
            return None
        last = sorted(rank, key=lambda name: rank[name])[-max(1, int(self.share * len(known))) :]
        if ready not in last:
            return None
        others = [name for name in rank if name != ready]
        pair = [others[int(rng.integers(len(others)))] for _ in range(2)]
        parent = min(pair, key=lambda name: rank[name])
        if rank[parent] >= rank[ready]:
            return None
        return clone(ready, parent, f"front {rank[ready][0] + 1}; {parent} is of front {rank[parent][0] + 1}")


def ranks(members: list[Individual], z: float) -> dict[str, tuple[int, float]]:
    """Name -> (front from 0 on, minus the crowding distance): the smaller, the better."""
    found: dict[str, tuple[int, float]] = {}
    for place, front in enumerate(fronts([m.objectives for m in members], z)):
        for index, distance in zip(front, crowding([members[i].objectives for i in front]), strict=True):
            found[members[index].name] = (place, -distance)
    return found
