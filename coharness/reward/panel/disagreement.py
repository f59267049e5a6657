"""How much a panel disagrees, on one item or over a batch.

Agreement is not correctness: judges that share a bias agree. Use a measure as a reason to look closer, or calibrate it on anchors
first (`calibration.fit_isotonic` of disagreement against being wrong).
"""

import itertools
import math

import numpy as np
import numpy.typing as npt
from scipy import stats

from coharness.reward.panel.votes import check_verdicts


def vote_entropy(verdicts: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Entropy in bits of each item's verdicts over {+1, -1, 0} [I]; 0 where all say the same."""
    table = np.sign(check_verdicts(verdicts))
    shares = np.stack([(table == outcome).mean(axis=0) for outcome in (-1.0, 0.0, 1.0)])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares > 0, -shares * np.log2(shares), 0.0)
    return np.asarray(terms.sum(axis=0))


def mutual_information(probabilities: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """H[mean p] - mean H[p] in bits of each item [I], for P(first is better) of each judge [J, I].

    High where judges are sure and differ, 0 where all are unsure alike (Houlsby et al., 2011).
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"got probabilities of shape {p.shape}, expected judges by items, in [0, 1]")
    return np.asarray(np.maximum(_binary_entropy(p.mean(axis=0)) - _binary_entropy(p).mean(axis=0), 0.0))


def _binary_entropy(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    clipped = np.clip(p, 1e-300, 1.0)
    other = np.clip(1 - p, 1e-300, 1.0)
    return np.asarray(-(p * np.log2(clipped) + (1 - p) * np.log2(other)))


def krippendorff_alpha(ratings: npt.ArrayLike) -> float:
    """Krippendorff's α for ordinal ratings [J, I], NaN where missing: 1 full agreement, 0 chance, below 0 worse than chance.

    Source: Krippendorff (2011), coincidence matrix with ordinal distances. Raises ValueError where nothing can be compared.
    """
    table = np.asarray(ratings, dtype=np.float64)
    values = np.unique(table[~np.isnan(table)])
    counts = np.stack([(table == value).sum(axis=0) for value in values], axis=1).astype(np.float64)  # [I, V]
    per_item = counts.sum(axis=1)
    counts = counts[per_item >= 2]
    if not len(counts):
        raise ValueError("no item has two ratings, so agreement cannot be measured")
    m = counts.sum(axis=1)
    coincidences = np.einsum("iv,iw,i->vw", counts, counts, 1 / (m - 1))
    coincidences -= np.diag((counts / (m - 1)[:, None]).sum(axis=0))
    totals = coincidences.sum(axis=1)
    n = totals.sum()
    distances = np.zeros((len(values), len(values)))
    for a, b in itertools.combinations(range(len(values)), 2):
        span = totals[a : b + 1].sum() - (totals[a] + totals[b]) / 2
        distances[a, b] = distances[b, a] = span**2
    expected = float((np.outer(totals, totals) * distances).sum() / (n - 1))
    if expected == 0:
        return 1.0
    return 1.0 - float((coincidences * distances).sum()) / expected


def mean_tau(scores: npt.ArrayLike) -> float:
    """Mean over pairs of judges of Kendall's τ-b between their scores [J, I]; pairs where one has no order are left out."""
    table = np.asarray(scores, dtype=np.float64)
    taus = []
    for a, b in itertools.combinations(table, 2):
        if np.ptp(a) > 0 and np.ptp(b) > 0:
            tau = float(stats.kendalltau(a, b).statistic)
            if math.isfinite(tau):
                taus.append(tau)
    if not taus:
        raise ValueError("no two judges order the items, so their rankings cannot be compared")
    return float(np.mean(taus))
