"""A rate over many judged items, corrected by the few that a person settled: what a dashboard may print.

The mean of a judge's verdicts over everything is biased by as much as the judge is. Settled items alone are unbiased and few.
Prediction-powered inference uses both, and is as wide as the settled items alone where the judge says nothing.
"""

import numpy as np
import numpy.typing as npt
from scipy import special

from coharness.stats.interval import Interval, check_level

MIN_INFORMATION = 1.1
"""Least sensitivity + specificity at which a rate can be corrected by them; a coin has 1."""


def prediction_powered_mean(
    truth: npt.ArrayLike, judged: npt.ArrayLike, judged_more: npt.ArrayLike, *, level: float = 0.95
) -> Interval:
    """The mean of the truth over a population, from n settled items and N more that are only judged (PPI++).

    θ = mean(y) + λ (mean(f over N) - mean(f over n)), λ = Cov(y, f) / ((1 + n/N) Var f) clipped to [0, 1], so that a useless
    judge is not used. The interval uses Student's quantile with n - 1 degrees of freedom. Source: Angelopoulos, Duchi and
    Zrnic (2023).

    Args:
        truth: y of the settled items [n], n >= 2.
        judged: f of the same items [n].
        judged_more: f of the others [N], N >= 1; the same population, or the estimate is of neither.
        level: two-sided coverage.

    Raises:
        ValueError: shapes that do not fit, or values that are not finite.
    """
    check_level(level)
    y, f, more = (np.asarray(v, dtype=np.float64) for v in (truth, judged, judged_more))
    if y.shape != f.shape or y.ndim != 1 or len(y) < 2 or more.ndim != 1 or not len(more):
        raise ValueError(
            f"got truth {y.shape}, judged {f.shape}, more {more.shape}; expected [n], [n], [N] with n >= 2, N >= 1"
        )
    if not all(np.isfinite(v).all() for v in (y, f, more)):
        raise ValueError("a value is not finite; leave failed judgments out, with their items")
    n, total = len(y), len(more)
    variance = float(np.concatenate([f, more]).var(ddof=1))
    covariance = float(np.cov(y, f)[0, 1])
    weight = 0.0 if variance == 0 else min(max(covariance / ((1 + n / total) * variance), 0.0), 1.0)
    estimate = float(y.mean() + weight * (more.mean() - f.mean()))
    error = np.sqrt((y - weight * f).var(ddof=1) / n + weight**2 * (more.var(ddof=1) if total > 1 else 0.0) / total)
    half = float(special.stdtrit(n - 1, 0.5 + level / 2) * error)
    return Interval.containing(estimate, estimate - half, estimate + half, level)


def mean_interval(truth: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Student's interval of the settled items alone; what the correction is to be compared with."""
    check_level(level)
    y = np.asarray(truth, dtype=np.float64)
    if y.ndim != 1 or len(y) < 2:
        raise ValueError(f"got truth of shape {y.shape}, expected [n] with n >= 2")
    half = float(special.stdtrit(len(y) - 1, 0.5 + level / 2) * y.std(ddof=1) / np.sqrt(len(y)))
    return Interval.containing(float(y.mean()), float(y.mean()) - half, float(y.mean()) + half, level)


def rogan_gladen(judged_rate: float, sensitivity: float, specificity: float) -> float:
    """The true rate behind a judged one, from the judge's error rates (Rogan and Gladen, 1978); clipped to [0, 1].

    .6 judged, sensitivity .9, specificity .8 -> .5714.

    Raises:
        ValueError: sensitivity + specificity of 1.1 or less, where the correction divides by almost nothing.
    """
    information = sensitivity + specificity
    if information <= MIN_INFORMATION:
        raise ValueError(
            f"sensitivity {sensitivity:g} and specificity {specificity:g} sum to {information:g}, expected more than "
            f"{MIN_INFORMATION:g}; such a judge cannot be corrected, use prediction_powered_mean"
        )
    return min(max((judged_rate + specificity - 1) / (information - 1), 0.0), 1.0)
