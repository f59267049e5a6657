"""From margins to probabilities, fitted on anchors and judged on anchors the fit did not see.

Margins of a pair are made symmetric first: (m_AB - m_BA) / 2 carries the preference, (m_AB + m_BA) / 2 the favour for a place.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize

Array = npt.NDArray[np.float64]
Predictor = Callable[[Array], Array]
MIN_ISOTONIC = 200
"""Anchors below which an isotonic fit is mostly noise; a temperature needs far fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapSplit:
    """Margins of pairs shown in both orders."""

    margin: Array
    "Preference for the first candidate, free of place [N]."
    position: Array
    "Favour for whatever is shown first [N]."


def split_swap(first: npt.ArrayLike, swapped: npt.ArrayLike) -> SwapSplit:
    """Split margins of both orders; each is the margin of what was shown first over what was shown second."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(swapped, dtype=np.float64)
    return SwapSplit(margin=(one - two) / 2, position=(one + two) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """P = σ((m - b) / T)."""

    temperature: float
    bias: float

    def __call__(self, margins: npt.ArrayLike) -> Array:
        """Probabilities of margins."""
        z = (np.asarray(margins, dtype=np.float64) - self.bias) / self.temperature
        return np.asarray(1 / (1 + np.exp(-np.clip(z, -500, 500))))


def fit_temperature(margins: npt.ArrayLike, labels: npt.ArrayLike, *, with_bias: bool = True) -> Temperature:
    """Least negative log-likelihood of σ((m - b) / T) for labels 0 or 1 [N] (Platt, 1999; Guo et al., 2017).

    A judge whose margins say nothing gets a high temperature, never a negative one: a judge is left out, not inverted.

    Raises:
        ValueError: fewer than 2 anchors, labels other than 0 and 1, or margins without spread.
    """
    m, y = _checked(margins, labels)
    scale = float(m.std())
    if scale == 0:
        raise ValueError("all margins are equal, so they cannot be calibrated")

    def loss(x: Array) -> tuple[float, Array]:
        slope, bias = np.exp(-x[0]) / scale, (x[1] * scale if with_bias else 0.0)
        z = slope * (m - bias)
        p = 1 / (1 + np.exp(-np.clip(z, -500, 500)))
        # A weak prior keeps separable anchors finite.
        value = float(np.mean(np.logaddexp(0, z) - y * z) + 1e-4 * (x**2).sum())
        d_z = (p - y) / len(m)
        grad = np.array([-(d_z * z).sum(), -(d_z * slope * scale).sum() if with_bias else 0.0]) + 2e-4 * x
        return value, grad

    found = optimize.minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-8, 12), (-5, 5)])
    return Temperature(
        temperature=float(scale * np.exp(found.x[0])), bias=float(found.x[1] * scale) if with_bias else 0.0
    )


def fit_isotonic(margins: npt.ArrayLike, labels: npt.ArrayLike) -> Predictor:
    """The nondecreasing step function nearest to the labels (Ayer et al., 1955), kept off 0 and 1 by half an anchor.

    Raises:
        ValueError: as `fit_temperature`, or fewer than 200 anchors.
    """
    m, y = _checked(margins, labels)
    if len(m) < MIN_ISOTONIC:
        raise ValueError(
            f"got {len(m)} anchors, expected at least {MIN_ISOTONIC} for an isotonic fit; use fit_temperature"
        )
    order = np.argsort(m, kind="stable")
    x = m[order]
    fitted = np.asarray(optimize.isotonic_regression(y[order]).x)
    floor = 0.5 / len(m)

    def predict(values: Array) -> Array:
        index = np.clip(np.searchsorted(x, np.asarray(values, dtype=np.float64), side="right") - 1, 0, len(x) - 1)
        return np.asarray(np.clip(fitted[index], floor, 1 - floor))

    return predict


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """How well probabilities fit what happened."""

    ece: float
    "Expected calibration error over equal-width bins."
    brier: float
    nll: float
    "Mean negative log-likelihood in nats."
    num_items: int


def report_calibration(probabilities: npt.ArrayLike, labels: npt.ArrayLike, num_bins: int = 10) -> CalibrationReport:
    """Figures of given probabilities of class 1; the ECE is of the predicted class's confidence (Guo et al., 2017)."""
    p, y = _checked(probabilities, labels)
    confidence, right = np.maximum(p, 1 - p), np.where(p >= 0.5, y, 1 - y)
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    ece = 0.0
    for index in range(num_bins):
        inside = bins == index
        if inside.any():
            ece += float(inside.mean()) * abs(float(confidence[inside].mean() - right[inside].mean()))
    clipped = np.clip(p, 1e-12, 1 - 1e-12)
    return CalibrationReport(
        ece=ece,
        brier=float(((p - y) ** 2).mean()),
        nll=float(-(y * np.log(clipped) + (1 - y) * np.log1p(-clipped)).mean()),
        num_items=len(p),
    )


def cross_fitted(
    margins: npt.ArrayLike, labels: npt.ArrayLike, rng: np.random.Generator, *, num_folds: int = 5
) -> CalibrationReport:
    """Figures of temperatures fitted on the other folds: what a calibrated judge can be expected to hold on fresh items."""
    m, y = _checked(margins, labels)
    if len(m) < 2 * num_folds:
        raise ValueError(f"got {len(m)} anchors for {num_folds} folds, expected at least two a fold")
    folds = rng.permutation(len(m)) % num_folds
    p = np.empty(len(m))
    for fold in range(num_folds):
        held = folds == fold
        p[held] = fit_temperature(m[~held], y[~held])(m[held])
    return report_calibration(p, y)


def _checked(values: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array]:
    x, y = np.asarray(values, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise ValueError(f"got values {x.shape} and labels {y.shape}, expected [N] of both with N >= 2")
    if not np.isin(y, (0.0, 1.0)).all() or not np.isfinite(x).all():
        raise ValueError("labels must be 0 or 1 and values finite; leave failed judgments out")
    return x, y
