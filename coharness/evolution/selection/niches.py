"""Resource sharing: a case that many solve feeds each of them less, so specialists live (natural niches; Abrantes et al., 2025).

    z_j = sum of all members' scores on case j          f_i = sum_j s_ij / z_j^alpha
    mate of A: drawn by sum_j max(0, (s_Bj - s_Aj) / z_j^alpha), i.e. by what B would add where A is weak

When its turn comes, the member that stands last by f gives way to a child of A, drawn by f, and its mate.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.evolution.selection.contract import Change, Forgetful, Genes, Population
from coharness.evolution.selection.lexicase import case_tables

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Niches(Forgetful):
    """Replace the member that the resources feed least."""

    alpha: float = 1.0
    "0 shares nothing: fitness is then the sum of the scores."
    merge: bool = False
    "Whether children have two parents; a trainable must be able to merge."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`; members without cases are left alone.

        Raises:
            ValueError: a score is negative; resources are shared by scores of 0 or more.
        """
        known = [member for member in population.members if member.is_known and member.cases]
        names = [member.name for member in known]
        if len(known) < 2 or ready not in names:
            return None
        scores, _ = case_tables([member.cases for member in known])
        shared = shared_fitness(scores, self.alpha)
        mine = names.index(ready)
        # Of several last ones the first in the order of the members: one at a time, then all is read anew.
        if mine != int(shared.argmin()) or shared[mine] == shared.max():
            return None
        feeding = shared.copy()
        feeding[mine] = 0.0
        first = _draw(feeding, rng)
        if not self.merge:
            why = f"fed least by the shared cases; {names[first]} was drawn by what it is fed"
            return Change(member=ready, parents=(names[first],), weights=(1.0,), genes=Genes.EXPLORE, why=why)
        gains = complementary_gains(scores, self.alpha, first)
        gains[mine] = 0.0
        second = _draw(gains, rng) if gains.sum() > 0 else first
        parents = (names[first],) if second == first else (names[first], names[second])
        why = f"fed least by the shared cases; child of {' and '.join(parents)}"
        weights = tuple(1.0 / len(parents) for _ in parents)
        return Change(member=ready, parents=parents, weights=weights, genes=Genes.EXPLORE, why=why)


def shared_fitness(scores: npt.NDArray[np.float64], alpha: float) -> Vector:
    """f_i of the module, [members], from scores of 0 or more, [members, cases]. A case that nobody scores on feeds nobody."""
    return _shared(scores, alpha).sum(axis=1)  # type: ignore[no-any-return]


def complementary_gains(scores: npt.NDArray[np.float64], alpha: float, first: int) -> Vector:
    """What each member would add where `first` is weak, [members]; 0 for itself."""
    shared = _shared(scores, alpha)
    gains: Vector = np.maximum(shared - shared[first], 0.0).sum(axis=1)
    return gains


def _shared(scores: npt.NDArray[np.float64], alpha: float) -> npt.NDArray[np.float64]:
    if (scores < 0).any():
        raise ValueError(
            f"cases: a score is {scores.min():g}; resources are shared by scores of 0 or more, shift them first"
        )
    supply = scores.sum(axis=0)  # [cases]
    return np.divide(scores, np.where(supply > 0, supply, 1.0) ** alpha)


def _draw(weights: Vector, rng: np.random.Generator) -> int:
    edges = np.cumsum(weights)
    if edges[-1] <= 0:
        return int(rng.integers(len(weights)))
    return min(int(np.searchsorted(edges, rng.random() * edges[-1], side="right")), len(weights) - 1)
