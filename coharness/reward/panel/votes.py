"""Verdicts of several judges on pairs: +1 for the first candidate, -1 for the second, 0 where there is none or a tie."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Verdicts = npt.NDArray[np.float64]
"""[J, I] judges by items, values in [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """Items whose truth is known.

    Raises:
        ValueError: labels other than +1 and -1, indices that repeat, or lengths that differ.
    """

    items: npt.NDArray[np.int64]
    "Indices into the items [G]."
    labels: npt.NDArray[np.float64]
    "+1 or -1 [G]."

    def __post_init__(self) -> None:
        if self.items.shape != self.labels.shape or self.items.ndim != 1:
            raise ValueError(
                f"anchors have {self.items.shape} items and {self.labels.shape} labels, expected [G] of both"
            )
        if not np.isin(self.labels, (-1.0, 1.0)).all():
            raise ValueError("anchors have labels other than +1 and -1; leave ties and unsettled items out")
        if len(np.unique(self.items)) != len(self.items):
            raise ValueError("an item stands twice among the anchors; each counts once, both of its orders together")

    def __len__(self) -> int:
        return len(self.items)

    def subset(self, where: npt.NDArray[np.bool_]) -> "Anchors":
        """The anchors at which `where` [G] is true."""
        return Anchors(items=self.items[where], labels=self.labels[where])


def anchors_of(items: Sequence[int], labels: Sequence[float]) -> Anchors:
    """Anchors from plain lists."""
    return Anchors(items=np.asarray(items, dtype=np.int64), labels=np.asarray(labels, dtype=np.float64))


def check_verdicts(verdicts: npt.ArrayLike) -> Verdicts:
    """Verdicts as an array [J, I] of finite numbers in [-1, 1]."""
    table = np.asarray(verdicts, dtype=np.float64)
    if table.ndim != 2 or not table.size:
        raise ValueError(f"verdicts have shape {table.shape}, expected judges by items, both at least 1")
    if not (np.isfinite(table).all() and (np.abs(table) <= 1).all()):
        raise ValueError("verdicts outside [-1, 1] or not finite; a verdict that failed is 0, and is counted apart")
    return table


def symmetrised(first: npt.ArrayLike, swapped: npt.ArrayLike) -> Verdicts:
    """One verdict of both orders, both in the frame of the first: their mean, 0 where they contradict each other.

    Averaging before anything is counted keeps the number of anchors honest: two orders of a pair are not two pairs.
    """
    return np.asarray((check_verdicts(first) + check_verdicts(swapped)) / 2.0)


def swap_inconsistency(first: npt.ArrayLike, swapped: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Share of items on which a judge's two verdicts contradict each other [J], over those with both; NaN-free: 0 of 0 is 0.

    A low rate is necessary for a good judge and says nothing about it being right.
    """
    one, two = check_verdicts(first), check_verdicts(swapped)
    both = (one != 0) & (two != 0)
    contradict = both & (np.sign(one) != np.sign(two))
    return np.asarray(contradict.sum(axis=1) / np.maximum(both.sum(axis=1), 1))


def majority(verdicts: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Sign of the sum of verdicts [I], 0 for a tie. A baseline, not a model: it knows no judge from another."""
    return np.asarray(np.sign(check_verdicts(verdicts).sum(axis=0)))


def accuracy(decisions: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of decisions with the label's sign, a tie counting half."""
    made, truth = np.sign(np.asarray(decisions, dtype=np.float64)), np.asarray(labels, dtype=np.float64)
    if made.shape != truth.shape or not made.size:
        raise ValueError(f"got decisions {made.shape} and labels {truth.shape}, expected as many, and at least one")
    return float(np.where(made == 0, 0.5, made == truth).mean())
