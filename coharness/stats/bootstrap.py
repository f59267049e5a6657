"""Owns bootstrap intervals over tasks, stratified by whatever the caller keys its strata with (family and level).

Invariants: the statistic is the plain mean of the stratum means; tasks are resampled inside their stratum and a task
keeps all its values together, so differences and four-cell interactions stay paired. Draws come from the generator
handed in and follow the order of the mapping. The report drives it, once a figure, for one run: seeds are compared by
`paired`, and seeds x tasks are never pooled.

Each stratum of n tasks is resampled n - 1 at a time with replacement: the variance of such a mean is exactly the
unbiased s^2 / n, where n at a time would give s^2 (n - 1) / n^2 and too narrow intervals in small strata (McCarthy and
Snowden, 1985; Rao and Wu, 1988).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coharness.stats.interval import Interval, check_level

Values: TypeAlias = npt.NDArray[np.float64]
K = TypeVar("K", bound=Hashable)

# Index blocks are cut to about this many draws, 16 MB, whatever the number of tasks.
_MAX_DRAWS_AT_ONCE = 2_000_000


def _checked(name: str, values: npt.ArrayLike) -> Values:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name}: got shape {array.shape}, expected one number a task")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: got {int((~np.isfinite(array)).sum())} values that are not finite, expected none")
    return array


def _resampled_means(values: Values, num_resamples: int, rng: np.random.Generator) -> Values:
    """Return the means [num_resamples] of n - 1 of the n values [n], drawn with replacement."""
    num_drawn = values.size - 1
    rows = max(1, _MAX_DRAWS_AT_ONCE // num_drawn)
    means = np.empty(num_resamples)
    for start in range(0, num_resamples, rows):
        stop = min(start + rows, num_resamples)
        drawn = rng.integers(0, values.size, size=(stop - start, num_drawn), dtype=np.int64)
        means[start:stop] = values[drawn].mean(axis=1)
    return means


def stratified_mean_interval(
    values_by_stratum: Mapping[K, npt.ArrayLike],
    *,
    rng: np.random.Generator,
    num_resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """Return the percentile bootstrap interval of the mean of stratum means.

    Each stratum holds one number a task, [n] with n >= 2. Source: Efron (1979), stratified by Rao and Wu (1988).
    Raises ValueError on no stratum, a stratum of one task, a value that is not finite, or num_resamples < 100.
    """
    check_level(level)
    if num_resamples < 100:
        raise ValueError(f"num_resamples: got {num_resamples!r}, expected 100 or more; 2000 is usual")
    if not values_by_stratum:
        raise ValueError("values_by_stratum: got no stratum, expected at least one")
    estimate = 0.0
    resampled = np.zeros(num_resamples)
    for key, raw in values_by_stratum.items():
        values = _checked(f"stratum {key!r}", raw)
        if values.size < 2:
            raise ValueError(
                f"stratum {key!r}: got {values.size} task(s), expected 2 or more; a single task has no spread to "
                "resample, so draw more tasks or merge it with a neighbouring stratum"
            )
        estimate += float(values.mean()) / len(values_by_stratum)
        resampled += _resampled_means(values, num_resamples, rng) / len(values_by_stratum)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(resampled, (tail, 1.0 - tail)).tolist()
    return Interval.containing(estimate, low, high, level)


def stratified_difference_interval(
    first_by_stratum: Mapping[K, npt.ArrayLike],
    second_by_stratum: Mapping[K, npt.ArrayLike],
    *,
    rng: np.random.Generator,
    num_resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """Return the interval of mean(first) - mean(second) where both were measured on the same tasks.

    The two arrays of a stratum are aligned: position i is the same task in both. Raises ValueError when the strata or
    their lengths differ, and as `stratified_mean_interval` does.
    """
    combined = _combined({"first": (first_by_stratum, 1.0), "second": (second_by_stratum, -1.0)})
    return stratified_mean_interval(combined, rng=rng, num_resamples=num_resamples, level=level)


def interaction_interval(
    j00: Mapping[K, npt.ArrayLike],
    j10: Mapping[K, npt.ArrayLike],
    j01: Mapping[K, npt.ArrayLike],
    j11: Mapping[K, npt.ArrayLike],
    *,
    rng: np.random.Generator,
    num_resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """Return the interval of the interaction J11 - J10 - J01 + J00 of four cells measured on the same tasks.

    First digit: evolved weights or not; second: evolved harness or not. Positive means the two help each other.
    Arrays are aligned as in `stratified_difference_interval`, which also names the errors.
    """
    combined = _combined({"j11": (j11, 1.0), "j10": (j10, -1.0), "j01": (j01, -1.0), "j00": (j00, 1.0)})
    return stratified_mean_interval(combined, rng=rng, num_resamples=num_resamples, level=level)


def _combined(parts: Mapping[str, tuple[Mapping[K, npt.ArrayLike], float]]) -> dict[K, Values]:
    """Return the signed sum, task by task, of aligned arrays; all parts must have the same strata and lengths."""
    reference_name, (reference, _) = next(iter(parts.items()))
    sums: dict[K, Values] = {key: np.zeros(np.shape(values)) for key, values in reference.items()}
    for name, (by_stratum, sign) in parts.items():
        if by_stratum.keys() != reference.keys():
            odd = sorted(map(repr, by_stratum.keys() ^ reference.keys()))
            raise ValueError(
                f"strata of {name} and {reference_name}: {', '.join(odd)} in only one of them, expected the same"
            )
        for key in sums:
            values = _checked(f"stratum {key!r} of {name}", by_stratum[key])
            if values.shape != sums[key].shape:
                raise ValueError(
                    f"stratum {key!r}: got {values.size} tasks in {name} and {sums[key].size} in {reference_name}, "
                    "expected the same tasks in the same order"
                )
            sums[key] = sums[key] + sign * values
    return sums


def iqm(values: npt.ArrayLike) -> float:
    """Return the interquartile mean: the mean after dropping floor(n / 4) values at each end.

    Less swayed by one lucky seed than the mean, less wasteful than the median. Source: Agarwal et al. (2021). Raises
    ValueError on no value or one that is not finite.
    """
    array = np.sort(_checked("values", values))
    if array.size == 0:
        raise ValueError("values: got none, expected at least one number")
    num_dropped = array.size // 4
    return float(array[num_dropped : array.size - num_dropped].mean())
