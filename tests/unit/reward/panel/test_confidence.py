"""Calibration, selection and corrected estimates: known answers, coverage by simulation, another library's values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coharness.reward.panel.calibration import (
    cross_fitted,
    fit_isotonic,
    fit_temperature,
    report_calibration,
    split_swap,
)
from coharness.reward.panel.estimation import mean_interval, prediction_powered_mean, rogan_gladen
from coharness.reward.panel.selective import fit_selection, risk_bound


def margins(num: int, temperature: float, bias: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    m = rng.normal(scale=10.0, size=num)
    y = rng.random(num) < 1 / (1 + np.exp(-(m - bias) / temperature))
    return m, y.astype(float)


def test_a_temperature_is_recovered_and_mends_overconfidence() -> None:
    m, y = margins(4000, 14.0, 3.0, 0)
    fitted = fit_temperature(m, y)
    assert fitted.temperature == pytest.approx(14.0, rel=0.1)
    assert fitted.bias == pytest.approx(3.0, abs=1.0)
    raw = report_calibration(1 / (1 + np.exp(-m)), y)
    assert raw.ece > 0.2
    assert cross_fitted(m, y, np.random.default_rng(0)).ece < 0.04


def test_the_fit_is_the_least_loss_of_a_fine_grid() -> None:
    m, y = margins(300, 6.0, 0.0, 1)
    fitted = fit_temperature(m, y, with_bias=False)
    grid = np.geomspace(0.5, 100, 2000)
    losses = [np.mean(np.logaddexp(0, m / t) - y * m / t) for t in grid]
    assert fitted.temperature == pytest.approx(grid[int(np.argmin(losses))], rel=0.02)


def test_a_judge_that_says_nothing_is_left_out_and_not_inverted() -> None:
    rng = np.random.default_rng(2)
    fitted = fit_temperature(rng.normal(size=400), rng.integers(0, 2, 400).astype(float), with_bias=False)
    assert fitted.temperature > 3
    against = fit_temperature([-2.0, -1.0, 1.0, 2.0] * 20, [1.0, 1.0, 0.0, 0.0] * 20, with_bias=False)
    assert abs(float(against(np.array([2.0]))[0]) - 0.5) < 0.01


def test_separable_anchors_stay_finite() -> None:
    fitted = fit_temperature([-1.0, -0.5, 0.5, 1.0], [0.0, 0.0, 1.0, 1.0])
    assert math.isfinite(fitted.temperature)
    assert fitted.temperature > 0


def test_calibration_by_hand() -> None:
    report = report_calibration([0.95, 0.95, 0.25, 0.55], [1, 0, 0, 1])
    assert report.ece == pytest.approx(0.5 * abs(0.95 - 0.5) + 0.25 * abs(0.75 - 1) + 0.25 * abs(0.55 - 1))
    assert report.brier == pytest.approx((0.0025 + 0.9025 + 0.0625 + 0.2025) / 4)


def test_isotonic_fits_never_fall_and_need_enough_anchors() -> None:
    m, y = margins(400, 5.0, 0.0, 3)
    predict = fit_isotonic(m, y)
    values = predict(np.linspace(-40, 40, 200))
    assert (np.diff(values) >= 0).all()
    assert 0 < values[0] < values[-1] < 1
    with pytest.raises(ValueError, match="at least 200"):
        fit_isotonic(m[:100], y[:100])


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=20))
def test_swapping_turns_the_preference_and_keeps_the_position(pairs: list[tuple[float, float]]) -> None:
    one, two = np.asarray(pairs).T
    straight, turned = split_swap(one, two), split_swap(two, one)
    assert (straight.margin == -turned.margin).all()
    assert (straight.position == turned.position).all()


# Selection ----------------------------------------------------------------------------------------------------------


def test_the_risk_bound_is_the_beta_quantile() -> None:
    for wrong, n in ((0, 22), (3, 50), (10, 40)):
        assert risk_bound(wrong, n, 0.1) == pytest.approx(float(stats.beta.ppf(0.9, wrong + 1, n - wrong)))
    assert risk_bound(5, 5, 0.1) == 1.0


def test_too_few_anchors_answer_nothing() -> None:
    found = fit_selection(np.ones(10), np.zeros(10))
    assert (found.threshold, found.coverage, found.bound) == (math.inf, 0.0, 1.0)
    assert not found.answers([1.0, 99.0]).any()


def test_a_perfect_judge_answers_everything() -> None:
    found = fit_selection(np.linspace(0, 1, 60), np.zeros(60))
    assert found.coverage == 1.0
    assert found.threshold == 0.0


def test_equal_confidences_stand_or_fall_together() -> None:
    confidence = np.repeat([0.9, 0.5], 50)
    wrong = np.concatenate([np.zeros(50), np.ones(50)])
    found = fit_selection(confidence, wrong)
    assert (found.threshold, found.coverage, found.risk) == (0.9, 0.5, 0.0)


def test_the_promise_is_kept_over_many_draws() -> None:
    rng = np.random.default_rng(4)
    broken, coverage = 0, []
    for _ in range(400):
        confidence = rng.random(150)
        wrong = rng.random(150) < 0.4 * (1 - confidence)
        found = fit_selection(confidence, wrong, alpha=0.1, delta=0.1)
        coverage.append(found.coverage)
        if math.isfinite(found.threshold):
            true_risk = 0.4 * (1 - (1 + found.threshold) / 2)
            broken += true_risk > 0.1
    assert broken / 400 <= 0.1
    assert np.mean(coverage) > 0.1, "a rule that never answers keeps every promise"


# Estimation ---------------------------------------------------------------------------------------------------------


def ppi_case() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    y = rng.integers(0, 2, 40).astype(float)
    f = np.where(rng.random(40) < 0.85, y, 1 - y)
    return y, f, rng.integers(0, 2, 400).astype(float)


def test_the_corrected_mean_agrees_with_the_ppi_package() -> None:
    """ppi_mean_pointestimate and ppi_mean_ci of ppi-python 0.2.3, which uses normal quantiles and ddof 0."""
    estimate = prediction_powered_mean(*ppi_case())
    assert estimate.value == pytest.approx(0.46923, abs=0.004)
    normal = (0.5845679881570728 - 0.35389526765688095) / 2
    assert (estimate.high - estimate.low) / 2 == pytest.approx(normal * stats.t.ppf(0.975, 39) / 1.959964, rel=0.03)


def test_a_useless_judge_costs_nothing_and_a_perfect_one_gives_everything() -> None:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 60).astype(float)
    constant = prediction_powered_mean(y, np.ones(60), np.ones(500))
    assert (constant.low, constant.high) == pytest.approx((mean_interval(y).low, mean_interval(y).high))
    more = rng.integers(0, 2, 2000).astype(float)
    perfect = prediction_powered_mean(y, y, more)
    assert perfect.high - perfect.low < 0.35 * (mean_interval(y).high - mean_interval(y).low)


def test_the_corrected_interval_covers() -> None:
    rng = np.random.default_rng(6)
    hits = 0
    for _ in range(600):
        y = (rng.random(1040) < 0.3).astype(float)
        f = np.where(rng.random(1040) < 0.8, y, 1 - y)
        hits += not prediction_powered_mean(y[:40], f[:40], f[40:]).excludes(0.3)
    assert hits / 600 >= 0.93


def test_rogan_and_gladen() -> None:
    assert rogan_gladen(0.6, 0.9, 0.8) == pytest.approx(0.5714, abs=1e-4)
    assert rogan_gladen(0.05, 0.9, 0.9) == 0.0
    with pytest.raises(ValueError, match="cannot be corrected"):
        rogan_gladen(0.6, 0.55, 0.55)
