"""Measurements and preferences as arrays: what everything that scores, fits or gates works on.

A group is one task with its candidates; pairs never cross groups. Statistics take the group as their unit, since the pairs of
one group share candidates and are no independent witnesses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coharness.records.ids import hash_unit
from coharness.reward.library.criterion import Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTable:
    """Measurements of candidates.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    features: tuple[str, ...]
    "Names of the columns."
    values: Floats
    "[C, F]; NaN where a tool could not tell."
    group: Ints
    "Index of each candidate's group [C]."
    names: tuple[str, ...]
    "Names of the groups [G]."
    contexts: tuple[str, ...]
    "Kind of task of each group [G]."

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape != (len(self.group), len(self.features)):
            raise ValueError(f"values: got shape {self.values.shape}, expected {(len(self.group), len(self.features))}")
        if len(self.names) != len(self.contexts) or len(set(self.names)) != len(self.names):
            raise ValueError(f"groups: got {len(self.names)} names and {len(self.contexts)} contexts, expected as many of both, "
                             "and no name twice")  # fmt: skip
        if len(self.group) and not 0 <= self.group.min() <= self.group.max() < len(self.names):
            raise ValueError(f"group: got indices up to {self.group.max()}, expected 0 to {len(self.names) - 1}")

    def column(self, feature: str) -> Floats:
        """Values of one feature [C].

        Raises:
            KeyError: there is no such feature.
        """
        try:
            return np.asarray(self.values[:, self.features.index(feature)])
        except ValueError:
            raise KeyError(f"no feature {feature!r} among the {len(self.features)} that were measured") from None

    def applies(self, contexts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Whether each candidate's task is of one of these kinds [C]; all are where none is named."""
        if not contexts:
            return np.ones(len(self.group), dtype=np.bool_)
        wanted = np.array([context in contexts for context in self.contexts], dtype=np.bool_)
        return np.asarray(wanted[self.group])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """Preferences between candidates of a table."""

    first: Ints
    "Row of the first candidate [P]."
    second: Ints
    target: Floats
    "1 where the first is preferred, 0 the second, .5 a tie [P]."
    weight: Floats
    "How much each counts [P]; 1 unless strengths are used."
    group: Ints
    "Group of each pair [P]."

    def __len__(self) -> int:
        return len(self.first)

    def where(self, kept: npt.NDArray[np.bool_]) -> "PairTable":
        """The pairs of a mask [P]."""
        return PairTable(
            first=self.first[kept], second=self.second[kept], target=self.target[kept], weight=self.weight[kept],
            group=self.group[kept],
        )  # fmt: skip

    def of_groups(self, groups: npt.NDArray[np.bool_]) -> "PairTable":
        """The pairs of the groups of a mask [G]."""
        return self.where(groups[self.group])

    def with_targets(self, target: Floats) -> "PairTable":
        """The same pairs with other preferences."""
        return replace(self, target=target)

    @property
    def swapped(self) -> "PairTable":
        """All pairs the other way round; a judge must say the opposite of each."""
        return replace(self, first=self.second, second=self.first, target=1.0 - self.target)


def all_pairs(table: FeatureTable, worth: Floats, tie: float = 0.0) -> PairTable:
    """All pairs within groups by the candidates' worth [C]; those that differ by less than `tie` are left out as ties are."""
    first, second = [], []
    for index in range(len(table.names)):
        rows = np.flatnonzero(table.group == index)
        one, two = np.triu_indices(len(rows), 1)
        first.append(rows[one])
        second.append(rows[two])
    a, b = (np.concatenate(part) if part else np.zeros(0, dtype=np.int64) for part in (first, second))
    gap = worth[a] - worth[b]
    pairs = PairTable(
        first=a, second=b, target=(gap > 0).astype(np.float64), weight=np.ones(len(a)), group=table.group[a]
    )
    return pairs.where(np.abs(gap) > tie)


def split_groups(names: Sequence[str], share: float, *salt: str | int) -> npt.NDArray[np.bool_]:
    """A mask [G] of about `share` of the groups, exact to one group, a pure function of the names and the salt."""
    order = sorted(range(len(names)), key=lambda index: hash_unit("split", *salt, names[index]))
    mask = np.zeros(len(names), dtype=np.bool_)
    mask[order[: round(share * len(names))]] = True
    return mask
