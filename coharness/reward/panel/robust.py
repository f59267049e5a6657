"""One score of several judges' scores, of which a few may be far off."""

from collections.abc import Sequence

import numpy as np


def trimmed_mean(scores: Sequence[float], share: float = 0.2) -> float:
    """The mean without the lowest and the highest `share` of the scores (rounded down, at least one stays).

    (.9, .85, .8, .82, .1) -> .8233 with one cut at each end; the plain mean is .694.

    Raises:
        ValueError: no score, or a share outside [0, .5).
    """
    if not scores or not 0.0 <= share < 0.5:
        raise ValueError(
            f"got {len(scores)} scores and share {share!r}, expected at least one score and a share in [0, .5)"
        )
    cut = int(share * len(scores))
    return float(np.mean(sorted(scores)[cut : len(scores) - cut]))


def hodges_lehmann(scores: Sequence[float]) -> float:
    """The median of all pairwise means (Hodges and Lehmann, 1963): robust as a median, nearly as sharp as a mean."""
    if not scores:
        raise ValueError("got no score, expected at least one")
    x = np.asarray(scores, dtype=np.float64)
    rows, columns = np.triu_indices(len(x))
    return float(np.median((x[rows] + x[columns]) / 2))


def median(scores: Sequence[float]) -> float:
    """The median."""
    if not scores:
        raise ValueError("got no score, expected at least one")
    return float(np.median(np.asarray(scores, dtype=np.float64)))


def mad(scores: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled."""
    middle = median(scores)
    return float(np.median(np.abs(np.asarray(scores, dtype=np.float64) - middle)))
