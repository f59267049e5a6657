"""Owns `BetaEvidence`, success and failure counts with forgetting, and what decisions read from such posteriors.

Invariants: counts are finite and not negative; the uniform prior Beta(1, 1) is added when a figure is read, never
stored, so decay forgets evidence and not the prior. A cell is one (pairing, family, level, answer format). Selection,
pairing, sampling and the curriculum drive it, thousands of times a run: nothing here takes over 0.2 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special


def _nodes_on_unit_interval(num_nodes: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return Gauss-Legendre nodes and weights [num_nodes] on (0, 1), substituted so that both ends are flat.

    Fractional counts make a density behave like x^0.3 at an end, where the plain rule converges slowly; with
    x = u^3 (10 - 15 u + 6 u^2) the integrand is smooth enough.
    """
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    u = (nodes + 1.0) / 2.0
    return u**3 * (10.0 - 15.0 * u + 6.0 * u**2), weights * 15.0 * (u * (1.0 - u)) ** 2


_NODES, _NODE_WEIGHTS = _nodes_on_unit_interval(64)
# Chance that the quadrature leaves out on either side, well below any threshold a decision uses.
_TAIL = 1e-11


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaEvidence:
    """Evidence about one success probability p, posterior Beta(1 + successes, 1 + failures).

    Counts may be fractions, since old evidence decays. Raises ValueError on a negative or not finite count.

    Miniature: BetaEvidence(successes=8, failures=2) has mean 9/12; `.decayed(0.5)` holds 4 and 1 and has mean 5/7;
    `.decayed(0.0)` is the prior, mean 1/2.
    """

    successes: float = 0.0
    failures: float = 0.0

    def __post_init__(self) -> None:
        for name, count in (("successes", self.successes), ("failures", self.failures)):
            if not (math.isfinite(count) and count >= 0.0):
                raise ValueError(f"BetaEvidence.{name}: got {count!r}, expected a finite count of 0 or more")

    def decayed(self, factor: float) -> BetaEvidence:
        """Return the evidence with both counts multiplied by `factor` in [0, 1]."""
        if not 0.0 <= factor <= 1.0:
            raise ValueError(f"decay factor: got {factor!r}, expected 0 (forget all) to 1 (keep all)")
        return BetaEvidence(successes=self.successes * factor, failures=self.failures * factor)

    def observed(self, successes: float, failures: float) -> BetaEvidence:
        """Return the evidence with these counts added."""
        added = BetaEvidence(successes=successes, failures=failures)
        return BetaEvidence(successes=self.successes + added.successes, failures=self.failures + added.failures)

    @property
    def alpha(self) -> float:
        """First parameter of the posterior, successes plus one."""
        return self.successes + 1.0

    @property
    def beta(self) -> float:
        """Second parameter of the posterior, failures plus one."""
        return self.failures + 1.0

    @property
    def mean(self) -> float:
        """Posterior mean of p."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> float:
        """Posterior variance of p."""
        total = self.alpha + self.beta
        return self.alpha * self.beta / (total * total * (total + 1.0))

    @property
    def effective_n(self) -> float:
        """Observations left after decay, without the prior."""
        return self.successes + self.failures

    def lower(self, q: float) -> float:
        """Return the q-quantile of the posterior; p lies above it with probability 1 - q."""
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"quantile: got {q!r}, expected 0 to 1, such as 0.05 for a 95 % lower bound")
        return float(special.betaincinv(self.alpha, self.beta, q))


def probability_greater(a: BetaEvidence, b: BetaEvidence) -> float:
    """Return P(p_a > p_b) for independent posteriors, absolute error below 1e-6.

    Gauss-Legendre quadrature of the narrower density times the other's distribution function, over the range that
    holds all but 2e-11 of the narrower one.
    """
    if b.variance < a.variance:
        return 1.0 - _probability_above(b, a)
    return _probability_above(a, b)


def _probability_above(narrow: BetaEvidence, wide: BetaEvidence) -> float:
    """Return P(p_narrow > p_wide). Only the narrow density is resolved by the nodes, the other factor is smoother."""
    low = float(special.betaincinv(narrow.alpha, narrow.beta, _TAIL))
    high = float(special.betainccinv(narrow.alpha, narrow.beta, _TAIL))
    x = low + (high - low) * _NODES  # [64]
    log_density = special.xlogy(narrow.successes, x) + special.xlog1py(narrow.failures, -x)
    # Dividing by the same sum of weights cancels the normalising constant together with its rounding error.
    weights = _NODE_WEIGHTS * np.exp(log_density - log_density.max())
    chance = float(weights @ special.betainc(wide.alpha, wide.beta, x)) / float(weights.sum())
    return min(1.0, max(0.0, chance))


def mean_of_cells(cells: Sequence[BetaEvidence], weights: Sequence[float] | None = None) -> tuple[float, float]:
    """Return mean and variance of the average success probability over independent cells.

    `weights` is the fixed evaluation mix, one number of 0 or more a cell, scaled here to sum to 1; left out, every
    cell counts the same. Raises ValueError on no cell, or on weights of another length, negative, or all zero.
    """
    if not cells:
        raise ValueError("mean_of_cells: got no cell, expected at least one; fill empty cells before reading a fitness")
    shares = _mix(len(cells), weights)
    mean = math.fsum(share * cell.mean for share, cell in zip(shares, cells, strict=True))
    variance = math.fsum(share * share * cell.variance for share, cell in zip(shares, cells, strict=True))
    return mean, variance


def _mix(num_cells: int, weights: Sequence[float] | None) -> list[float]:
    """Return one share a cell, summing to 1."""
    if weights is None:
        return [1.0 / num_cells] * num_cells
    if len(weights) != num_cells:
        raise ValueError(f"weights: got {len(weights)}, expected one a cell, {num_cells}")
    total = math.fsum(weights)
    if not (math.isfinite(total) and total > 0.0 and min(weights) >= 0.0):
        raise ValueError(f"weights: got {list(weights)!r}, expected finite numbers of 0 or more, not all zero")
    return [weight / total for weight in weights]


def probability_mean_greater(
    cells_a: Sequence[BetaEvidence], cells_b: Sequence[BetaEvidence], weights: Sequence[float] | None = None
) -> float:
    """Return P(average over cells_a > average over cells_b), both under the same mix, by normal approximation.

    The cells of the two sides must stand for the same keys in the same order. Raises ValueError on different lengths
    and as `mean_of_cells` does.
    """
    if len(cells_a) != len(cells_b):
        raise ValueError(
            f"cells: got {len(cells_a)} against {len(cells_b)}, expected the same keys on both sides; "
            "an average over other cells is not comparable"
        )
    mean_a, variance_a = mean_of_cells(cells_a, weights)
    mean_b, variance_b = mean_of_cells(cells_b, weights)
    return float(special.ndtr((mean_a - mean_b) / math.sqrt(variance_a + variance_b)))


def informative_probability(evidence: BetaEvidence, group_size: int) -> float:
    """Return E[1 - p^G - (1 - p)^G]: the chance that a group of G episodes has both a success and a failure.

    Only such groups carry an advantage in group-relative training. Closed form: E[p^G] is the ratio of the rising
    factorials of alpha and of alpha + beta. Raises ValueError on a group size below 1 (G = 1 gives 0).
    """
    if group_size < 1:
        raise ValueError(f"group_size: got {group_size!r}, expected 1 or more episodes a group")
    a, b = evidence.alpha, evidence.beta
    all_succeed = all_fail = 1.0
    for i in range(group_size):
        all_succeed *= (a + i) / (a + b + i)
        all_fail *= (b + i) / (a + b + i)
    return max(0.0, 1.0 - all_succeed - all_fail)


def expected_variance(evidence: BetaEvidence) -> float:
    """Return E[p (1 - p)] under the posterior, the expected variance of one outcome, at most 1/4."""
    total = evidence.alpha + evidence.beta
    return evidence.alpha * evidence.beta / (total * (total + 1.0))
