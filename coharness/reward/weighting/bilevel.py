"""Weights that make the reward agree with settled anchors: the outer problem of a bilevel one, a step at a time.

The inner problem is the policy's: it maximises the weighted reward. The outer one asks for weights under which what is better by
truth is rewarded more. Where anchors are answers that are there already, their likelihood is a plain function of the weights and
has a gradient (`anchor_gradient`). Where it takes a policy to see what weights do, two evaluations give a direction
(`spsa_gradient`).
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special

from coharness.reward.weighting.simplex import MAX_DRIFT, Weights, check_weights, moved, project

Array = npt.NDArray[np.float64]
SHARPNESS = 8.0
"""Log-odds that a whole unit of weighted reward stands for."""


def anchor_log_likelihood(weights: Weights, differences: npt.ArrayLike, *, sharpness: float = SHARPNESS) -> float:
    """Mean log-likelihood of the anchors, sigmoid(sharpness w·x) each (Bradley and Terry, 1952); -log 2 for a coin.

    Args:
        weights: [K]
        differences: each criterion's value of the better answer less that of the worse [A, K].
        sharpness: log-odds of one unit of reward.
    """
    x = _anchors(differences, len(weights))
    return float(special.log_expit(sharpness * (x @ weights)).mean())


def anchor_gradient(weights: Weights, differences: npt.ArrayLike, *, sharpness: float = SHARPNESS) -> Array:
    """Gradient of `anchor_log_likelihood` in the weights [K]."""
    x = _anchors(differences, len(weights))
    return np.asarray(sharpness * (special.expit(-sharpness * (x @ weights)) @ x) / len(x))


def spsa_gradient(
    evaluate: Callable[[Weights], float], weights: Weights, rng: np.random.Generator, *, width: float = 0.1
) -> Array:
    """Gradient along a random direction by two evaluations (Spall, 1992), without its part that leaves the simplex [K].

    Args:
        evaluate: what is to rise, with noise; called for two weights on the simplex.
        weights: where.
        rng: of the direction.
        width: how far to either side.
    """
    signs = rng.permutation(np.resize([1.0, -1.0], len(weights)))
    direction = signs - signs.mean()
    up, down = project(weights + width * direction), project(weights - width * direction)
    span = up - down
    length = float(span @ span)
    if length < 1e-12:
        return np.zeros(len(weights))
    return np.asarray((evaluate(up) - evaluate(down)) * span / length)


def step(weights: npt.ArrayLike, gradient: npt.ArrayLike, *, rate: float, max_drift: float = MAX_DRIFT) -> Weights:
    """One projected step uphill, no longer than `max_drift`.

    Raises:
        ValueError: weights off the simplex, another length, or a gradient that is not finite.
    """
    w, g = check_weights(weights), np.asarray(gradient, dtype=np.float64)
    if g.shape != w.shape or not np.isfinite(g).all() or not rate > 0:
        raise ValueError(
            f"got a gradient of shape {g.shape} and rate {rate!r}, expected {w.shape} of finite numbers and a rate above 0"
        )
    return moved(w, project(w + rate * g), max_drift)


def _anchors(differences: npt.ArrayLike, num_weights: int) -> Array:
    x = np.asarray(differences, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != num_weights or not len(x) or not np.isfinite(x).all():
        raise ValueError(
            f"got anchors of shape {x.shape}, expected [A, {num_weights}] of finite numbers with A of 1 or more; leave out "
            "pairs of which a criterion is missing"
        )
    return x
