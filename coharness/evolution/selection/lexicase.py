"""Epsilon-lexicase: cases in random order, each keeping those that are about as good as the best (La Cava et al., 2019).

A specialist that is best on a few cases survives whenever one of them comes first, whatever its mean. As a rule for survival:
who is left at the end of none of many random orders gives way to one that is. Members that tie to the end all survive, since a
tie is no reason to lose anybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.evolution.selection.contract import Change, Forgetful, Population, Score, clone

Table = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexicase(Forgetful):
    """Survive by being drawn."""

    z: float = 1.0
    "Standard errors within which a case's scores count as equal, where that is more than the median absolute deviation."
    orders: int = 64
    "Random orders of the cases; one that a member wins with probability p keeps it with 1 - (1 - p)^orders."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`; members without cases are left alone."""
        known = [member for member in population.members if member.is_known and member.cases]
        names = [member.name for member in known]
        if len(known) < 2 or ready not in names:
            return None
        passes = passing(*case_tables([member.cases for member in known]), z=self.z)
        pools = [left_over(passes, rng) for _ in range(self.orders)]
        survivors = {int(index) for pool in pools for index in pool}
        if names.index(ready) in survivors:
            return None
        parent = names[draw(passes, rng)]
        return clone(ready, parent, f"left over by no order of the cases; {parent} is")


def case_tables(rows: Sequence[Sequence[Score]]) -> tuple[Table, Table]:
    """Means and errors, [members, cases] each.

    Raises:
        ValueError: the members were not scored on the same number of cases.
    """
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"cases: members have {sorted(lengths)} of them, expected the same number above 0 for all")
    table = np.asarray([[(s.mean, s.error) for s in row] for row in rows], dtype=np.float64)
    return table[..., 0], table[..., 1]


def passing(means: Table, errors: Table, *, z: float) -> "Epsilons":
    """The scores with each case's epsilon: the larger of its median absolute deviation and z standard errors of its best."""
    center = np.median(means, axis=0)
    deviation = np.median(np.abs(means - center), axis=0)  # [cases]
    best = means.argmax(axis=0)
    return Epsilons(means=means, epsilon=np.maximum(deviation, z * errors[best, np.arange(means.shape[1])]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Epsilons:
    """Scores, and how near to the best counts as equal."""

    means: Table
    "[members, cases]"
    epsilon: Table
    "[cases]"


def left_over(scores: Epsilons, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices that one random order of the cases leaves over; several where they tie on all cases."""
    left = np.arange(len(scores.means))
    for case in rng.permutation(scores.means.shape[1]):
        values = scores.means[left, case]
        left = left[values >= values.max() - scores.epsilon[case]]
        if len(left) == 1:
            break
    return left


def draw(scores: Epsilons, rng: np.random.Generator) -> int:
    """The index that one random order of the cases selects; a tie to the end is broken uniformly."""
    left = left_over(scores, rng)
    return int(left[int(rng.integers(len(left)))])
