"""Fitting a linear judge: logistic loss on settled attempts and on pairs, with a ridge, by L-BFGS. Deterministic and convex.

loss(w) = mean over attempts of log(1 + exp(-y w·x))  [right and wrong ones weigh alike]
        + mean over pairs of log(1 + exp(-w·(x_better - x_worse)))   (Bradley and Terry, 1952)
        + ridge / 2 |w|²
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse
from scipy.special import expit

from coharness.records.ids import NO_JUDGE, JudgeId
from coharness.reward.linear.features import NUM_FEATURES, features
from coharness.reward.linear.model import LinearModel

RIDGE = 1e-3
MAX_ITERATIONS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An attempt whose verdict is known."""

    question: str
    answer: str
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Two answers to one question of which one is known to be better."""

    question: str
    better: str
    worse: str


def fit(
    attempts: Sequence[Settled],
    pairs: Sequence[Ordered],
    *,
    parent: JudgeId = NO_JUDGE,
    about: dict[str, Any] | None = None,
    ridge: float = RIDGE,
) -> LinearModel:
    """The judge that fits these best.

    Raises:
        ValueError: there is nothing to tell apart: neither a pair nor attempts of both kinds.
    """
    right = np.array([a.right for a in attempts], dtype=bool)
    has_both = bool(right.any() and not right.all())
    if not pairs and not has_both:
        raise ValueError(
            f"got {len(attempts)} attempts, {int(right.sum())} of them right, and no pair; expected pairs, or attempts of both "
            "kinds"
        )
    rows = [features(a.question, a.answer) for a in attempts] if has_both else []
    signs = np.where(right, 1.0, -1.0) if has_both else np.empty(0)
    # Weighed alike, or a judge of a weak policy would learn to say no.
    weights = np.where(right, 0.5 / max(right.sum(), 1), 0.5 / max((~right).sum(), 1)) if has_both else np.empty(0)
    for pair in pairs:
        rows.append(_difference(features(pair.question, pair.better), features(pair.question, pair.worse)))
    table = _table(rows)
    signs = np.concatenate([signs, np.ones(len(pairs))])
    weights = np.concatenate([weights, np.full(len(pairs), 1.0 / max(len(pairs), 1))])

    def loss(w: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        margins = signs * (table @ w)
        value = float(weights @ np.logaddexp(0.0, -margins)) + 0.5 * ridge * float(w @ w)
        return value, table.T @ (-weights * signs * expit(-margins)) + ridge * w

    used = np.unique(table.indices)
    table = table[:, used]
    found = optimize.minimize(
        loss, np.zeros(len(used)), jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATIONS}
    )
    made = {"operator": "fit", "attempts": len(attempts), "pairs": len(pairs), **(about or {})}
    return LinearModel(
        weights={int(i): float(w) for i, w in zip(used, found.x, strict=True) if abs(w) > 1e-9},
        parent=parent,
        about=made,
    )


def _difference(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    keys = a.keys() | b.keys()
    return {key: a.get(key, 0.0) - b.get(key, 0.0) for key in sorted(keys)}


def _table(rows: Sequence[dict[int, float]]) -> Any:
    starts = np.cumsum([0, *(len(row) for row in rows)])
    indices = np.fromiter((i for row in rows for i in row), dtype=np.int64, count=int(starts[-1]))
    data = np.fromiter((x for row in rows for x in row.values()), dtype=np.float64, count=int(starts[-1]))
    return sparse.csr_matrix((data, indices, starts), shape=(len(rows), NUM_FEATURES))
