"""A Gaussian process whose world changes with time, for bandits over settings.

    k((x, t), (x', t')) = s² exp(-|x - x'|² / (2 l²)) (1 - e)^(|t - t'| / 2)      plus noise n² on the diagonal

(TV-GP-UCB; Bogunovic et al., 2016). Inputs lie in the unit cube, outputs are standardised by the caller, time counts
intervals. The four parameters are those of the highest marginal likelihood from a few fixed starts; a matrix that is not
positive definite gets more jitter, step by step, and a loud error in the end.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

Array = npt.NDArray[np.float64]

_STARTS = ((0.0, -1.0, -2.0, 0.05), (0.0, 0.0, -0.5, 0.2))
_BOUNDS = ((-4.0, 3.0), (-3.5, 2.5), (-7.0, 1.0), (1e-4, 0.5))
"""Bounds of log s, log l, log n and e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The parameters of the covariance; see the module."""

    scale: float
    length: float
    noise: float
    forgetting: float

    def __call__(self, x: Array, t: Array, other_x: Array, other_t: Array) -> Array:
        """Covariances without noise, [n, m]."""
        distance = ((x[:, None] - other_x[None]) ** 2).sum(axis=2)
        age = np.abs(t[:, None] - other_t[None])
        found: Array = self.scale**2 * np.exp(-distance / (2 * self.length**2)) * (1 - self.forgetting) ** (age / 2)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProcess:
    """A process conditioned on data."""

    kernel: Kernel
    x: Array
    "[n, d]"
    t: Array
    "[n]"
    y: Array
    "[n]"
    factor: Array
    "Lower Cholesky factor of the covariance with noise, [n, n]."

    def mean(self, x: Array, t: Array) -> Array:
        """Posterior means, [m]."""
        weights = cho_solve((self.factor, True), self.y)
        found: Array = self.kernel(x, t, self.x, self.t) @ weights
        return found

    def deviation(self, x: Array, t: Array) -> Array:
        """Posterior standard deviations without noise, [m]."""
        half = solve_triangular(self.factor, self.kernel(self.x, self.t, x, t), lower=True)
        found: Array = np.sqrt(np.maximum(self.kernel.scale**2 - (half**2).sum(axis=0), 0.0))
        return found

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the data."""
        alpha = cho_solve((self.factor, True), self.y)
        return float(
            -0.5 * self.y @ alpha - np.log(np.diag(self.factor)).sum() - 0.5 * len(self.y) * math.log(2 * math.pi)
        )


def condition(kernel: Kernel, x: Array, t: Array, y: Array) -> GaussianProcess:
    """The process given data.

    Raises:
        ValueError: the covariance is not positive definite, whatever jitter is added; an input is not finite.
    """
    covariance = kernel(x, t, x, t)
    for jitter in (0.0, 1e-10, 1e-8, 1e-6, 1e-4):
        try:
            noisy = covariance + np.eye(len(y)) * (kernel.noise**2 + jitter * kernel.scale**2)
            factor = np.tril(cho_factor(noisy, lower=True)[0])
        except LinAlgError:
            continue
        return GaussianProcess(kernel=kernel, x=x, t=t, y=y, factor=factor)
    raise ValueError(
        f"the covariance of {len(y)} settings is not positive definite; are there values that are not finite?"
    )


def fit(x: Array, t: Array, y: Array) -> GaussianProcess:
    """The process with the parameters of the highest marginal likelihood found.

    Args:
        x: settings in the unit cube, [n, d].
        t: times, [n].
        y: standardised outputs, [n].
    """

    def loss(parameters: Array) -> float:
        try:
            return -condition(_kernel(parameters), x, t, y).log_likelihood
        except ValueError:
            return 1e6

    best = None
    for start in _STARTS:
        found = minimize(loss, np.asarray(start), method="L-BFGS-B", bounds=_BOUNDS, options={"maxiter": 40})
        if best is None or found.fun < best.fun:
            best = found
    assert best is not None
    return condition(_kernel(best.x), x, t, y)


def _kernel(parameters: Array) -> Kernel:
    scale, length, noise, forgetting = parameters
    return Kernel(scale=math.exp(scale), length=math.exp(length), noise=math.exp(noise), forgetting=float(forgetting))
