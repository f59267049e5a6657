"""Fixed-sample paired statistics against scipy.stats and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from coharness.stats.paired import exact_mcnemar_p, holm, mde, paired_t_interval, paired_t_lower_bound

DIFFERENCES = [0.031, 0.012, -0.004, 0.045, 0.020]


def test_the_interval_is_scipys() -> None:
    expected = stats.ttest_1samp(DIFFERENCES, 0.0).confidence_interval(0.9)
    interval = paired_t_interval(DIFFERENCES, level=0.9)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.value == pytest.approx(np.mean(DIFFERENCES))


def test_the_lower_bound_is_one_sided() -> None:
    expected = stats.ttest_1samp(DIFFERENCES, 0.0, alternative="greater").confidence_interval(0.95).low
    assert paired_t_lower_bound(DIFFERENCES) == pytest.approx(expected)
    assert paired_t_lower_bound(DIFFERENCES) == pytest.approx(paired_t_interval(DIFFERENCES, level=0.9).low)


def test_the_bound_is_above_nothing_no_oftener_than_its_level_allows() -> None:
    samples = np.random.default_rng(0).normal(size=(4000, 5))
    rate = np.mean([paired_t_lower_bound(sample) > 0 for sample in samples])
    assert rate == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / 4000))


def test_without_spread_the_bound_is_the_mean() -> None:
    assert paired_t_lower_bound([0.25, 0.25, 0.25]) == 0.25


@pytest.mark.parametrize("differences", [[], [0.1], [[0.1, 0.2]], [0.1, math.nan]])
def test_too_few_or_broken_differences_are_refused(differences: list[float]) -> None:
    with pytest.raises(ValueError, match="differences: got"):
        paired_t_lower_bound(differences)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_that_is_no_confidence_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level: got"):
        paired_t_interval(DIFFERENCES, level)


def test_holm_on_a_worked_example() -> None:
    # Steps 4 x .005, 3 x .01, 2 x .03, 1 x .04; the last is raised to the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_holm_of_none_is_none_and_of_nonsense_an_error() -> None:
    assert holm([]) == ()
    with pytest.raises(ValueError, match="pvalues"):
        holm([0.1, math.nan])


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (0, 7), (7, 0), (12, 4), (4, 12), (300, 250)])
def test_mcnemar_is_the_binomial_test(wins: int, losses: int) -> None:
    expected = stats.binomtest(wins, wins + losses, 0.5, alternative="greater").pvalue if wins + losses else 1.0
    assert exact_mcnemar_p(wins, losses) == pytest.approx(expected)


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(ValueError, match="losses -1"):
        exact_mcnemar_p(1, -1)


@pytest.mark.parametrize(("n", "power"), [(5, 0.8), (10, 0.9), (40, 0.5)])
def test_the_minimum_detectable_effect_is_found_with_the_asked_power(n: int, power: float) -> None:
    effect = mde(sd=2.0, n=n, power=power)
    samples = np.random.default_rng(n).normal(effect, 2.0, size=(20_000, n))
    t = samples.mean(axis=1) / (samples.std(axis=1, ddof=1) / math.sqrt(n))
    found = (t > stats.t.ppf(0.95, n - 1)).mean()
    assert found == pytest.approx(power, abs=0.012)


def test_the_minimum_detectable_effect_is_normal_for_many_pairs_and_scales_with_sd() -> None:
    expected = (stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) / math.sqrt(10_000)
    assert mde(sd=1.0, n=10_000) == pytest.approx(expected, rel=1e-3)
    assert mde(sd=3.0, n=7) == pytest.approx(3 * mde(sd=1.0, n=7))


@pytest.mark.parametrize("wrong", [{"sd": -1.0}, {"sd": math.inf}, {"n": 1}, {"power": 0.05}, {"power": 1.0}])
def test_a_power_question_without_answer_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: got"):
        mde(**{"sd": 1.0, "n": 10, **wrong})  # type: ignore[arg-type]
