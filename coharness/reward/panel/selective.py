"""Answering only where the risk is low: a threshold on confidence with a bound on how often the rest is wrong."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Whom to answer."""

    threshold: float
    "Least confidence that is answered; infinite where no threshold holds the bound and everything abstains."
    coverage: float
    "Share of the anchors at or above it."
    risk: float
    "Share of those that are wrong; 0 where nothing is answered."
    bound: float
    "Upper confidence bound of the risk; 1 where nothing is answered."

    def answers(self, confidence: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which items are answered."""
        return np.asarray(np.asarray(confidence, dtype=np.float64) >= self.threshold)


def fit_selection(
    confidence: npt.ArrayLike, wrong: npt.ArrayLike, *, alpha: float = 0.1, delta: float = 0.1
) -> Selection:
    """The lowest threshold, met going down from the surest items, whose risk is at most `alpha` with confidence `1 - delta`.

    The bound is Clopper and Pearson's (1934), one-sided. Thresholds are tried in a fixed order from the fewest anchors on which
    it can hold at all, and the first failure ends the search, so that trying many costs no confidence (Bauer, 1991); steps are
    a twentieth of the anchors, since steps of one anchor would end at the first error.

    Args:
        confidence: of each anchor's decision [G]; any increasing measure.
        wrong: whether that decision is wrong [G]; a half for a tie counts as wrong.
        alpha: risk that is allowed.
        delta: chance that the risk is higher all the same.

    Raises:
        ValueError: no anchors, or levels outside (0, 1).
    """
    c, e = np.asarray(confidence, dtype=np.float64), np.asarray(wrong, dtype=np.float64) > 0
    if c.shape != e.shape or c.ndim != 1 or not len(c):
        raise ValueError(
            f"got confidence {c.shape} and errors {e.shape}, expected [G] of both with at least one anchor"
        )
    if not (0 < alpha < 1 and 0 < delta < 1):
        raise ValueError(f"alpha is {alpha!r} and delta {delta!r}, expected numbers in (0, 1)")
    order = np.argsort(-c, kind="stable")
    c, e = c[order], e[order]
    least = math.ceil(math.log(delta) / math.log(1 - alpha))
    found = Selection(threshold=math.inf, coverage=0.0, risk=0.0, bound=1.0)
    step = max(1, len(c) // 20)
    for size in range(least, len(c) + step, step):
        # All anchors of equal confidence stand or fall together.
        n = min(int(np.searchsorted(-c, -c[min(size, len(c)) - 1], side="right")), len(c))
        if size > len(c) and found.coverage == 1.0:
            break
        errors = int(e[:n].sum())
        bound = risk_bound(errors, n, delta)
        if bound > alpha:
            break
        found = Selection(threshold=float(c[n - 1]), coverage=n / len(c), risk=errors / n, bound=bound)
    return found


def risk_bound(num_wrong: int, num_items: int, delta: float) -> float:
    """One-sided upper Clopper-Pearson bound of a risk, at confidence 1 - delta."""
    if not 0 <= num_wrong <= num_items or num_items < 1:
        raise ValueError(f"got {num_wrong} wrong of {num_items}, expected 0 or more of at least 1")
    if num_wrong == num_items:
        return 1.0
    return float(special.betaincinv(num_wrong + 1, num_items - num_wrong, 1 - delta))
