"""Owns fixed-sample tests and bounds for paired differences: t bounds, Holm's correction, exact McNemar, power.

Invariants: one difference a pair, pairs independent (one a seed, never seeds x tasks pooled). Studies drive it after
their runs are over; a test that is looked at while data arrive belongs to `sequential`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from coharness.stats.interval import Interval, check_level


def _mean_error_df(differences: npt.ArrayLike) -> tuple[float, float, int]:
    """Return the mean, its standard error and the degrees of freedom of at least two finite differences."""
    values = np.asarray(differences, dtype=np.float64)  # [N]
    if values.ndim != 1 or values.size < 2:
        raise ValueError(
            f"differences: got shape {values.shape}, expected one number a pair and at least 2 pairs; run more seeds"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"differences: got {int((~np.isfinite(values)).sum())} that are not finite, expected none")
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size), values.size - 1


def paired_t_lower_bound(differences: npt.ArrayLike, level: float = 0.95) -> float:
    """Return the one-sided lower t bound of the mean difference; the mean lies above it with confidence `level`.

    `differences` [N] holds one value a pair, N >= 2. With no spread at all the bound is the mean itself. Source:
    Student (1908). Raises ValueError on fewer than two differences, a value that is not finite, or a bad level.
    """
    check_level(level)
    mean, error, df = _mean_error_df(differences)
    return mean - float(special.stdtrit(df, level)) * error


def paired_t_interval(differences: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Return the two-sided t interval of the mean difference over `differences` [N], N >= 2.

    Source: Student (1908). Raises ValueError as `paired_t_lower_bound` does.
    """
    check_level(level)
    mean, error, df = _mean_error_df(differences)
    half = float(special.stdtrit(df, 0.5 + level / 2.0)) * error
    return Interval(low=mean - half, value=mean, high=mean + half, level=level)


def holm(pvalues: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for testing all of them, in the order given.

    Rejecting those at or below alpha keeps the chance of any false rejection at alpha under every dependence.
    Source: Holm (1979). Raises ValueError on a value outside [0, 1].
    """
    values = np.asarray(pvalues, dtype=np.float64)  # [N]
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(f"pvalues: got {list(pvalues)!r}, expected every one in [0, 1]")
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(values.size, 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return tuple(adjusted.tolist())


def exact_mcnemar_p(wins: int, losses: int) -> float:
    """Return the one-sided p-value of "wins are no likelier than losses": P(Binomial(wins + losses, 1/2) >= wins).

    Valid at one look only. Source: McNemar (1947), exact form. Raises ValueError on a negative count.
    """
    if wins < 0 or losses < 0:
        raise ValueError(f"McNemar counts: got wins {wins!r} and losses {losses!r}, expected 0 or more")
    # The binomial tail is an incomplete beta function, whose first argument must be positive.
    return 1.0 if wins == 0 else float(special.betainc(wins, losses + 1, 0.5))


def mde(sd: float, n: int, level: float = 0.95, power: float = 0.8) -> float:
    """Return the minimum detectable effect: the mean difference a one-sided paired t test finds with chance `power`.

    `sd` is the standard deviation of one difference, `n` >= 2 the number of pairs, `level` the one-sided confidence.
    Exact by the noncentral t distribution (Owen, 1965); same unit as `sd`. Raises ValueError on a negative or
    not finite sd, n < 2, a level outside (0, 1), or a power not in (1 - level, 1).
    """
    check_level(level)
    if not (math.isfinite(sd) and sd >= 0.0):
        raise ValueError(f"sd: got {sd!r}, expected a finite standard deviation of 0 or more")
    if n < 2:
        raise ValueError(f"n: got {n!r} pairs, expected 2 or more; a t test needs a spread")
    if not 1.0 - level < power < 1.0:
        raise ValueError(f"power: got {power!r}, expected above 1 - level = {1.0 - level:g} and below 1")
    critical = float(special.stdtrit(n - 1, level))
    return float(special.nctdtrinc(n - 1, 1.0 - power, critical)) * sd / math.sqrt(n)
