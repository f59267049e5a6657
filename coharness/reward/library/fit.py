"""Weights of criteria from preferences: logistic regression on differences, with a ridge.

Without an intercept, so that a swapped pair gets the opposite answer exactly. Bradley and Terry (1952) with features; a tie is
half a win of each.
"""

import numpy as np
from scipy import special

from coharness.reward.library.criterion import Floats

_STEPS = 30
_DONE = 1e-8


def fit_weights(differences: Floats, target: Floats, weight: Floats, ridge: float) -> Floats:
    """Weights [J] that maximise the penalised likelihood of the preferences.

    Args:
        differences: value of each criterion for the first candidate less that for the second [P, J].
        target: 1, .5 or 0 [P].
        weight: of each pair [P].
        ridge: penalty on squared weights, per standard deviation of their column; above 0.

    Raises:
        ValueError: a ridge that is not above 0: without one, separable preferences have no finite weights.
    """
    if not ridge > 0.0:
        raise ValueError(f"ridge: got {ridge!r}, expected a number above 0")
    num = differences.shape[1]
    if num == 0 or len(target) == 0:
        return np.zeros(num)
    scale = np.sqrt((differences**2).mean(axis=0))
    scale[scale == 0.0] = 1.0
    x = differences / scale
    beta = np.zeros(num)
    penalty = ridge * np.eye(num)
    for _ in range(_STEPS):
        p = special.expit(x @ beta)
        gradient = x.T @ (weight * (target - p)) - ridge * beta
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + penalty
        step = np.linalg.solve(curvature, gradient)
        # The likelihood is concave, but a full step from afar can overshoot.
        step *= min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        beta = beta + step
        if float(np.abs(step).max()) < _DONE:
            break
    return np.asarray(beta / scale)


def log_losses(margin: Floats, target: Floats) -> Floats:
    """Negative log-likelihood of each preference [P] under margins [P]; log 2 for a coin."""
    return np.asarray(np.logaddexp(0.0, margin) - target * margin)


def half_right(margin: Floats, target: Floats) -> Floats:
    """1 where a margin agrees with a preference, 0 where not, .5 where either is undecided [P]."""
    return np.asarray(0.5 + 0.5 * np.sign(margin) * np.sign(target - 0.5))
