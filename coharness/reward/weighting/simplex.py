"""Weights on the simplex: the nearest point of it, and steps of bounded length."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float64]
"""[K], 0 or more, summing to 1."""
MAX_DRIFT = 0.1
"""Largest sum of absolute changes of one step: a reward that jumps makes what was learned under the old one useless."""


def check_weights(weights: npt.ArrayLike) -> Weights:
    """Weights as an array.

    Raises:
        ValueError: they are not on the simplex.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not len(w) or not np.isfinite(w).all() or (w < -1e-9).any() or abs(w.sum() - 1) > 1e-6:
        raise ValueError(f"got weights {w.tolist()}, expected one or more, 0 or above, that sum to 1")
    return np.maximum(w, 0.0)


def normalised(weights: Mapping[str, float]) -> dict[str, float]:
    """The same weights, summing to 1.

    Raises:
        ValueError: one is below 0 or not finite, or all are 0.
    """
    values = np.asarray(list(weights.values()), dtype=np.float64)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
        raise ValueError(f"got weights {dict(weights)}, expected finite ones, 0 or above, of which one is above 0")
    return dict(zip(weights, (values / values.sum()).tolist(), strict=True))


def project(point: npt.ArrayLike) -> Weights:
    """The point of the simplex that is nearest (Held, Wolfe and Crowder, 1974): (.5, .5, .5) -> thirds, (2, 0) -> (1, 0)."""
    v = np.asarray(point, dtype=np.float64)
    if v.ndim != 1 or not len(v) or not np.isfinite(v).all():
        raise ValueError(f"got a point of shape {v.shape}, expected [K] of finite numbers with K of 1 or more")
    falling = np.sort(v)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(v) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(v - excess[last], 0.0))


def moved(old: npt.ArrayLike, target: npt.ArrayLike, max_drift: float = MAX_DRIFT) -> Weights:
    """From `old` towards `target`, both on the simplex, by at most `max_drift` in the sum of absolute changes."""
    a, b = check_weights(old), check_weights(target)
    distance = float(np.abs(b - a).sum())
    if distance <= max_drift:
        return b
    return np.asarray(a + (b - a) * (max_drift / distance))
