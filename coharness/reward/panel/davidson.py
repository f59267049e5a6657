"""Strengths of candidates from pairwise verdicts with ties, position bias, and judges that differ in reliability.

P(a ≻ b) = e^{m} / (e^{m} + 1 + 2ν cosh-term) in the form of Davidson (1970): with m = β_j (θ_a - θ_b) + δ_j for the first place,
the three outcomes weigh e^{m/2}, e^{-m/2} and ν. δ_j is judge j's favour for what it is shown first, β_j its reliability, which
may be negative for a judge that prefers the worse. A ridge keeps a candidate finite that never won.

    strengths 2 : 1, ν .5  ->  win .5395, tie .1907, loss .2698
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One verdict on two candidates, as they were shown."""

    judge: int
    first: int
    second: int
    verdict: int
    "+1 the first, -1 the second, 0 a tie."


@dataclass(frozen=True, slots=True, kw_only=True)
class Davidson:
    """Fitted strengths."""

    strengths: npt.NDArray[np.float64]
    "θ of each candidate [N], mean 0."
    reliabilities: npt.NDArray[np.float64]
    "β of each judge [J]; 1 for all where they were not fitted."
    position_bias: npt.NDArray[np.float64]
    "δ of each judge [J]."
    tie: float
    "ν; 0 where there are no ties."


def outcome_probabilities(margin: float, tie: float) -> tuple[float, float, float]:
    """P(win), P(tie), P(loss) of the first at a margin m and tie mass ν."""
    win, loss = math.exp(margin / 2), math.exp(-margin / 2)
    total = win + loss + tie
    return win / total, tie / total, loss / total


def fit_davidson(
    comparisons: Sequence[Comparison],
    num_candidates: int,
    num_judges: int = 1,
    *,
    fit_reliability: bool = False,
    ridge: float = 0.01,
) -> Davidson:
    """Maximum a-posteriori strengths under a normal prior of precision `ridge` on θ and δ.

    Reliabilities are held by a prior of the same kind at 1 with precision 1: enough to fix the scale, weak enough to let an
    adversarial judge turn negative.

    Raises:
        ValueError: no comparison, or one that names a candidate or judge that does not exist.
    """
    if not comparisons:
        raise ValueError("got no comparison, expected at least one")
    for c in comparisons:
        if not (0 <= c.first < num_candidates and 0 <= c.second < num_candidates and 0 <= c.judge < num_judges):
            raise ValueError(f"{c} names a candidate or judge outside 0..{num_candidates - 1} and 0..{num_judges - 1}")
    judge = np.asarray([c.judge for c in comparisons])
    first, second = np.asarray([c.first for c in comparisons]), np.asarray([c.second for c in comparisons])
    verdict = np.asarray([c.verdict for c in comparisons], dtype=np.float64)
    has_ties = bool((verdict == 0).any())
    n, j = num_candidates, num_judges

    def unpack(x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
        theta, delta = x[:n], x[n : n + j]
        beta = x[n + j : n + 2 * j] if fit_reliability else np.ones(j)
        return theta, delta, beta

    def loss(x: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        theta, delta, beta = unpack(x)
        log_tie = x[-1] if has_ties else -np.inf
        gap = theta[first] - theta[second]
        margin = beta[judge] * gap + delta[judge]
        logits = np.stack([margin / 2, -margin / 2, np.full_like(margin, log_tie)])  # [3, M]
        peak = logits.max(axis=0)
        log_total = peak + np.log(np.exp(logits - peak).sum(axis=0))
        chosen = np.where(verdict > 0, logits[0], np.where(verdict < 0, logits[1], logits[2]))
        p = np.exp(logits - log_total)
        d_margin = -(verdict / 2 - (p[0] - p[1]) / 2)  # of the negative log-likelihood
        grad = np.zeros_like(x)
        np.add.at(grad, first, d_margin * beta[judge])
        np.add.at(grad, second, -d_margin * beta[judge])
        np.add.at(grad, n + judge, d_margin)
        value = float(-(chosen - log_total).sum() + 0.5 * ridge * ((theta**2).sum() + (delta**2).sum()))
        grad[: n + j] += ridge * x[: n + j]
        if fit_reliability:
            np.add.at(grad, n + j + judge, d_margin * gap)
            value += 0.5 * float(((beta - 1) ** 2).sum())
            grad[n + j : n + 2 * j] += beta - 1
        if has_ties:
            grad[-1] = float(-((verdict == 0) - p[2]).sum())
        return value, grad

    size = n + j + (j if fit_reliability else 0) + int(has_ties)
    start = np.zeros(size)
    if fit_reliability:
        start[n + j : n + 2 * j] = 1.0
        # At θ = 0 a judge's β has no gradient, and the mirror image is a saddle away: begin at the plain fit.
        start[:n] = fit_davidson(comparisons, n, j, ridge=ridge).strengths
    found = optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9}
    )
    theta, delta, beta = unpack(found.x)
    return Davidson(
        strengths=theta - theta.mean(),
        reliabilities=beta,
        position_bias=delta,
        tie=float(np.exp(found.x[-1])) if has_ties else 0.0,
    )
