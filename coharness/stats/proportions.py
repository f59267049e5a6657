"""Owns intervals for one binomial proportion, k successes of n independent trials.

Invariants: ends lie in [0, 1] and hold the estimate k / n. The null (A/A) arm and the report drive it: the exact
interval where a bound is enforced, the score interval where figures are only shown.
"""

from __future__ import annotations

import math

from scipy import special

from coharness.stats.interval import Interval, check_level


def _check_counts(num_successes: int, num_trials: int) -> None:
    if num_trials < 1:
        raise ValueError(
            f"num_trials: got {num_trials!r}, expected 1 or more; a proportion of no trial has no interval"
        )
    if not 0 <= num_successes <= num_trials:
        raise ValueError(f"num_successes: got {num_successes!r}, expected 0 to num_trials = {num_trials}")


def clopper_pearson(num_successes: int, num_trials: int, level: float = 0.95) -> Interval:
    """Return the exact interval of a proportion: coverage is at least `level` for every true value.

    Source: Clopper and Pearson (1934). Raises ValueError on impossible counts or a level outside (0, 1).
    """
    _check_counts(num_successes, num_trials)
    check_level(level)
    tail = (1.0 - level) / 2.0
    num_failures = num_trials - num_successes
    low = 0.0 if num_successes == 0 else float(special.betaincinv(num_successes, num_failures + 1, tail))
    high = 1.0 if num_failures == 0 else float(special.betainccinv(num_successes + 1, num_failures, tail))
    return Interval.containing(num_successes / num_trials, low, high, level)


def wilson(num_successes: int, num_trials: int, level: float = 0.95) -> Interval:
    """Return the score interval of a proportion: coverage is `level` on average, narrower than the exact one.

    Source: Wilson (1927). Raises ValueError on impossible counts or a level outside (0, 1).
    """
    _check_counts(num_successes, num_trials)
    check_level(level)
    z = float(special.ndtri(0.5 + level / 2.0))
    share = num_successes / num_trials
    shrink = 1.0 + z * z / num_trials
    centre = (share + z * z / (2 * num_trials)) / shrink
    half = z / shrink * math.sqrt(share * (1.0 - share) / num_trials + (z / (2 * num_trials)) ** 2)
    return Interval.containing(share, max(0.0, centre - half), min(1.0, centre + half), level)
