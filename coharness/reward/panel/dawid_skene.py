"""Truth and judges' confusion together, by expectation maximisation with anchors held fixed (Dawid and Skene, 1979).

The model has a mirror image: swap all labels and invert all judges. Anchors break the tie; without them the larger cohort is
taken for the truth, however biased, and with great confidence. A fit that nothing holds in place says `identifiable=False`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.reward.panel.log_odds import anchored_reliabilities
from coharness.reward.panel.votes import Anchors, accuracy, check_verdicts
from coharness.stats.proportions import clopper_pearson


@dataclass(frozen=True, slots=True, kw_only=True)
class DawidSkene:
    """A fitted model."""

    probability: npt.NDArray[np.float64]
    "P(first candidate is better) of each item [I]; anchors have their label's."
    sensitivity: npt.NDArray[np.float64]
    "P(verdict +1 | truth +1) of each judge [J]."
    specificity: npt.NDArray[np.float64]
    "P(verdict -1 | truth -1) of each judge [J]."
    prior: float
    "Share of items whose first candidate is better."
    identifiable: bool
    "Whether anchors hold the fit in place: its judges, not told the anchors' labels, are surely better than a coin on them."
    iterations: int


def fit_dawid_skene(
    verdicts: npt.ArrayLike,
    anchors: Anchors | None,
    *,
    prior_counts: tuple[float, float] = (2.0, 1.0),
    class_count: float = 1.0,
    anchor_share: float = 1.0,
    max_iterations: int = 500,
    tolerance: float = 1e-6,
) -> DawidSkene:
    """Fit by EM, started from the judges' record on the anchors, or from the majority; verdicts of 0 are missing.

    `prior_counts` are pseudo-verdicts for and against each judge being right, in each class: Beta(2, 1) or the like keeps a
    judge of few items finite. `class_count` are pseudo-items of each class. Anchors together weigh `anchor_share` of what all
    other items do, and never less than one item each: a handful would be outvoted by what EM makes of the rest (on six recorded
    judges of LLMBar with 40 anchors, .52 accuracy unweighted and .81 with equal shares).
    """
    table = np.sign(check_verdicts(verdicts))
    told_first, told_second = (table > 0).astype(np.float64), (table < 0).astype(np.float64)  # [J, I]
    said = told_first + told_second
    clamped = np.full(table.shape[1], np.nan)
    if anchors is not None:
        clamped[anchors.items] = (anchors.labels + 1) / 2
    known = ~np.isnan(clamped)
    plus, minus = prior_counts
    if anchors is not None and len(anchors):
        # EM goes to the nearest mode: from the judges' record on the anchors, not from the cohort's own opinion.
        right = anchored_reliabilities(table, anchors)
        q = 1 / (1 + np.exp(-(np.log(right / (1 - right)) @ table)))
    else:
        share = told_first.sum(axis=0) / np.maximum(said.sum(axis=0), 1)
        q = np.where(said.sum(axis=0) > 0, share, 0.5)
    q = np.where(known, np.nan_to_num(clamped), q)
    # Anchors together count as much as all others: a handful of them would be outvoted by what EM makes of the rest.
    weight = np.where(known, max(1.0, anchor_share * (~known).sum() / max(known.sum(), 1)), 1.0)
    iterations = 0
    free = q
    for _ in range(max_iterations):
        iterations += 1
        weighted = weight * q
        rest = weight - weighted
        sensitivity = (told_first @ weighted + plus) / (said @ weighted + plus + minus)
        specificity = (told_second @ rest + plus) / (said @ rest + plus + minus)
        prior = (weighted.sum() + class_count) / (weight.sum() + 2 * class_count)
        odds = (
            np.log(prior / (1 - prior))
            + np.log(sensitivity / (1 - specificity)) @ told_first
            + np.log((1 - sensitivity) / specificity) @ told_second
        )
        free = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        updated = np.where(known, np.nan_to_num(clamped), free)
        change = float(np.abs(updated - q).max())
        q = updated
        if change < tolerance:
            break
    return DawidSkene(
        probability=q,
        sensitivity=sensitivity,
        specificity=specificity,
        prior=float(prior),
        identifiable=_is_held(free, anchors),
        iterations=iterations,
    )


def _is_held(free: npt.NDArray[np.float64], anchors: Anchors | None) -> bool:
    """Whether the fitted judges, not told the anchors' labels, are surely better than a coin on them."""
    if anchors is None or not len(anchors):
        return False
    right = round(accuracy(free[anchors.items] - 0.5, anchors.labels) * len(anchors))
    return clopper_pearson(right, len(anchors)).low > 0.5
