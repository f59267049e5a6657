"""Where a library errs, what each of its skills did there, and which ideas would have helped most.

An idea's promise is the score statistic of adding it: the slope of the likelihood at weight zero, over its standard error with
groups as clusters. It costs one product for a thousand ideas, where refitting each would cost a thousand fits.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from coharness.reward.library.criterion import Floats
from coharness.reward.library.table import PairTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What one skill did on the pairs that were looked at."""

    name: str
    used: int
    "Pairs on which it said anything."
    right: int
    "Pairs of those on which it spoke for the preferred candidate."
    pivotal_right: int
    "Pairs that would be judged wrong without it."
    pivotal_wrong: int
    "Pairs that would be judged right without it."


def credits_of(names: tuple[str, ...], contributions: Floats, pairs: PairTable) -> list[Credit]:
    """Credit of each skill.

    Args:
        names: of the skills [J].
        contributions: weighted difference that each makes to each margin [P, J].
        pairs: preferences [P].
    """
    sign = np.sign(pairs.target - 0.5)
    margin = contributions.sum(axis=1)
    right = np.sign(margin) == sign
    found = []
    for index, name in enumerate(names):
        own = contributions[:, index]
        without = np.sign(margin - own) == sign
        found.append(
            Credit(
                name=name, used=int((own != 0).sum()), right=int((np.sign(own) == sign)[own != 0].sum()),
                pivotal_right=int((right & ~without).sum()), pivotal_wrong=int((~right & without).sum()),
            )
        )  # fmt: skip
    return found


def promise(differences: Floats, margin: Floats, pairs: PairTable) -> Floats:
    """Signed promise of each idea [J]: its score statistic at the margins [P] of the library as it is.

    Source: score test of Rao (1948), variance by clusters after Liang and Zeger (1986).

    Args:
        differences: of each idea's values, first less second [P, J].
        margin: of the library [P]; 0 for an empty one.
        pairs: preferences [P].
    """
    residual = pairs.weight * (pairs.target - special.expit(margin))
    order = np.argsort(pairs.group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(pairs.group[order]) != 0])
    by_group = np.add.reduceat((differences * residual[:, None])[order], starts, axis=0)  # [G, J]
    spread = np.sqrt((by_group**2).sum(axis=0))
    found = np.zeros(differences.shape[1])
    np.divide(by_group.sum(axis=0), spread, out=found, where=spread > 1e-12)
    return found
