"""Stratified bootstrap: coverage on known populations, pairing, refusal of unusable strata; the interquartile mean."""

import math

import numpy as np
import pytest
from scipy import stats

from coharness.stats.bootstrap import (
    interaction_interval,
    iqm,
    stratified_difference_interval,
    stratified_mean_interval,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_estimate_is_the_mean_of_stratum_means_not_of_tasks() -> None:
    interval = stratified_mean_interval({"a": [0.0] * 30 + [1.0] * 10, "b": [1.0] * 3 + [0.0]}, rng=rng())
    assert interval.value == pytest.approx((0.25 + 0.75) / 2)
    assert interval.level == 0.95


def test_the_interval_covers_a_known_mean_about_as_often_as_it_says() -> None:
    truth = (0.9 + 0.5 + 0.2) / 3
    draw = rng(1)
    missed = 0
    for _ in range(600):
        sample = {rate: (draw.random(num) < rate).astype(float) for rate, num in ((0.9, 30), (0.5, 20), (0.2, 40))}
        missed += stratified_mean_interval(sample, rng=draw, num_resamples=400).excludes(truth)
    # Percentile intervals of 90 tasks run slightly short of .95; 3 standard errors of 600 runs are .027.
    assert 0.02 <= missed / 600 <= 0.09


def test_small_strata_have_the_unbiased_standard_error() -> None:
    values = {"a": np.array([0.0, 1.0, 3.0]), "b": np.array([2.0, 2.5, 7.0, 1.0])}
    expected = math.sqrt(sum(v.var(ddof=1) / v.size for v in values.values())) / 2
    interval = stratified_mean_interval(values, rng=rng(2), num_resamples=40_000, level=0.6827)
    assert (interval.high - interval.low) / 2 == pytest.approx(expected, rel=0.08)


def test_large_strata_agree_with_the_normal_interval_and_are_drawn_in_blocks() -> None:
    values = rng(3).normal(size=30_000)
    interval = stratified_mean_interval({0: values}, rng=rng(4), num_resamples=500)
    half = stats.norm.ppf(0.975) * values.std() / math.sqrt(values.size)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.2 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.2 * half)


def test_equal_generators_give_equal_intervals() -> None:
    values = {"a": rng(5).random(20)}
    assert stratified_mean_interval(values, rng=rng(6)) == stratified_mean_interval(values, rng=rng(6))
    assert stratified_mean_interval(values, rng=rng(6)) != stratified_mean_interval(values, rng=rng(7))


def test_pairing_removes_what_tasks_share() -> None:
    tasks = {key: rng(key).normal(scale=10.0, size=50) for key in (1, 2)}
    shifted = {key: values + 0.5 + rng(key + 10).normal(scale=0.1, size=50) for key, values in tasks.items()}
    interval = stratified_difference_interval(shifted, tasks, rng=rng())
    assert interval.value == pytest.approx(0.5, abs=0.05)
    assert interval.high - interval.low < 0.1
    assert interval.excludes(0.0)


def test_the_difference_of_equal_arrays_is_exactly_nothing() -> None:
    values = {"a": rng(8).random(12)}
    interval = stratified_difference_interval(values, values, rng=rng())
    assert (interval.low, interval.value, interval.high) == (0.0, 0.0, 0.0)


def test_the_interaction_of_additive_cells_is_nothing_and_a_planted_one_is_found() -> None:
    base = {key: rng(key).random(60) for key in (1, 2)}
    weights = {key: values + 0.2 for key, values in base.items()}
    harness = {key: values + 0.1 for key, values in base.items()}
    both = {key: values + 0.3 for key, values in base.items()}
    synergy = {key: values + 0.15 + rng(key + 20).normal(scale=0.02, size=60) for key, values in both.items()}
    assert interaction_interval(base, weights, harness, both, rng=rng()).value == pytest.approx(0.0, abs=1e-12)
    found = interaction_interval(base, weights, harness, synergy, rng=rng())
    assert found.value == pytest.approx(0.15, abs=0.02)
    assert found.excludes(0.0)


def test_interaction_has_the_signs_of_the_four_cells() -> None:
    cells = [{"a": np.full(5, value)} for value in (1.0, 10.0, 100.0, 1000.0)]
    assert interaction_interval(*cells, rng=rng()).value == 1000 - 100 - 10 + 1


def test_unusable_strata_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"stratum 'b': got 1 task"):
        stratified_mean_interval({"a": [0.0, 1.0], "b": [1.0]}, rng=rng())
    with pytest.raises(ValueError, match="no stratum"):
        stratified_mean_interval({}, rng=rng())
    with pytest.raises(ValueError, match=r"stratum 'a': got 1 values that are not finite"):
        stratified_mean_interval({"a": [0.0, math.nan]}, rng=rng())
    with pytest.raises(ValueError, match="one number a task"):
        stratified_mean_interval({"a": np.zeros((3, 2))}, rng=rng())
    with pytest.raises(ValueError, match="num_resamples"):
        stratified_mean_interval({"a": [0.0, 1.0]}, rng=rng(), num_resamples=10)
    with pytest.raises(ValueError, match="level"):
        stratified_mean_interval({"a": [0.0, 1.0]}, rng=rng(), level=95)


def test_arrays_that_do_not_line_up_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'b' in only one of them"):
        stratified_difference_interval({"a": [0.0, 1.0], "b": [0.0, 1.0]}, {"a": [0.0, 1.0]}, rng=rng())
    with pytest.raises(ValueError, match=r"got 3 tasks in second and 2 in first"):
        stratified_difference_interval({"a": [0.0, 1.0]}, {"a": [0.0, 1.0, 1.0]}, rng=rng())


@pytest.mark.parametrize("num", [1, 2, 3, 4, 7, 8, 50])
def test_iqm_is_the_quarter_trimmed_mean(num: int) -> None:
    values = rng(num).normal(size=num)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_iqm_ignores_one_wild_seed_and_refuses_none() -> None:
    assert iqm([1.0, 1.0, 1.0, 1e9]) == 1.0
    with pytest.raises(ValueError, match="got none"):
        iqm([])
