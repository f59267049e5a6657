"""Identities of evidence, corrections and intervals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.stats.beta import BetaEvidence, expected_variance, informative_probability, probability_greater
from coharness.stats.bootstrap import iqm, stratified_difference_interval, stratified_mean_interval
from coharness.stats.online_fdr import ELond
from coharness.stats.paired import exact_mcnemar_p, holm, paired_t_lower_bound
from coharness.stats.proportions import clopper_pearson, wilson

amounts = st.floats(0.0, 500.0)
evidences = st.builds(BetaEvidence, successes=amounts, failures=amounts)
numbers = st.floats(-100.0, 100.0)
strata = st.dictionaries(st.integers(0, 5), st.lists(numbers, min_size=2, max_size=8), min_size=1, max_size=4)


@settings(deadline=None)
@given(a=evidences, b=evidences)
def test_one_of_two_posteriors_is_greater(a: BetaEvidence, b: BetaEvidence) -> None:
    assert probability_greater(a, b) + probability_greater(b, a) == pytest.approx(1.0, abs=1e-6)


@settings(deadline=None)
@given(a=evidences, b=evidences)
def test_mirroring_success_and_failure_mirrors_the_comparison(a: BetaEvidence, b: BetaEvidence) -> None:
    flipped = [BetaEvidence(successes=e.failures, failures=e.successes) for e in (a, b)]
    assert probability_greater(a, b) == pytest.approx(probability_greater(flipped[1], flipped[0]), abs=1e-6)


@settings(deadline=None)
@given(a=evidences, b=evidences, extra=st.floats(0.1, 50.0))
def test_a_further_success_makes_greater_likelier(a: BetaEvidence, b: BetaEvidence, extra: float) -> None:
    assert probability_greater(a.observed(extra, 0.0), b) >= probability_greater(a, b) - 1e-6


@settings(deadline=None)
@given(evidence=evidences, factor=st.floats(0.0, 1.0))
def test_decay_draws_the_mean_towards_the_prior(evidence: BetaEvidence, factor: float) -> None:
    decayed = evidence.decayed(factor)
    assert decayed.effective_n <= evidence.effective_n
    low, high = sorted((0.5, evidence.mean))
    assert low - 1e-12 <= decayed.mean <= high + 1e-12


@settings(deadline=None)
@given(evidence=evidences, group_size=st.integers(1, 32))
def test_larger_groups_are_likelier_informative(evidence: BetaEvidence, group_size: int) -> None:
    chance = informative_probability(evidence, group_size)
    assert 0.0 <= chance <= informative_probability(evidence, group_size + 1) + 1e-12
    assert expected_variance(evidence) <= 0.25


@settings(deadline=None)
@given(pvalues=st.lists(st.floats(0.0, 1.0), max_size=8))
def test_holm_is_the_largest_step_at_or_below_each_value(pvalues: list[float]) -> None:
    def step(value: float) -> float:
        return min(1.0, value * sum(other >= value for other in pvalues))

    expected = [max(step(smaller) for smaller in pvalues if smaller <= value) for value in pvalues]
    assert holm(pvalues) == pytest.approx(expected)


@settings(deadline=None)
@given(wins=st.integers(0, 80), losses=st.integers(0, 80))
def test_the_two_mcnemar_tails_share_only_the_observed_table(wins: int, losses: int) -> None:
    observed = math.comb(wins + losses, wins) / 2 ** (wins + losses)
    assert exact_mcnemar_p(wins, losses) + exact_mcnemar_p(losses, wins) == pytest.approx(1.0 + observed)


@settings(deadline=None)
@given(differences=st.lists(numbers, min_size=2, max_size=10), shift=numbers)
def test_the_lower_bound_moves_with_the_differences(differences: list[float], shift: float) -> None:
    moved = paired_t_lower_bound(np.asarray(differences) + shift)
    assert moved == pytest.approx(paired_t_lower_bound(differences) + shift, abs=1e-6)


@settings(deadline=None)
@given(n=st.integers(1, 300), data=st.data(), level=st.floats(0.5, 0.999))
def test_proportion_intervals_are_ordered_and_mirror(n: int, data: st.DataObject, level: float) -> None:
    k = data.draw(st.integers(0, n))
    for method in (clopper_pearson, wilson):
        interval, mirror = method(k, n, level), method(n - k, n, level)
        assert 0.0 <= interval.low <= k / n <= interval.high <= 1.0
        assert (1 - mirror.high, 1 - mirror.low) == pytest.approx((interval.low, interval.high), abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(values=strata, seed=st.integers(0, 1000))
def test_a_bootstrap_interval_stays_within_its_values(values: dict[int, list[float]], seed: int) -> None:
    interval = stratified_mean_interval(values, rng=np.random.default_rng(seed), num_resamples=200)
    everything = [number for numbers_ in values.values() for number in numbers_]
    assert min(everything) - 1e-9 <= interval.low <= interval.high <= max(everything) + 1e-9


@settings(max_examples=40, deadline=None)
@given(values=strata, shift=numbers)
def test_a_constant_difference_has_no_width(values: dict[int, list[float]], shift: float) -> None:
    moved = {key: np.asarray(numbers_) + shift for key, numbers_ in values.items()}
    interval = stratified_difference_interval(moved, values, rng=np.random.default_rng(0), num_resamples=200)
    assert (interval.low, interval.high) == pytest.approx((shift, shift), abs=1e-9)


@settings(deadline=None)
@given(values=st.lists(numbers, min_size=1, max_size=30), scale=st.floats(0.1, 10.0), shift=numbers)
def test_iqm_moves_and_scales_with_its_values(values: list[float], scale: float, shift: float) -> None:
    assert iqm(np.asarray(values) * scale + shift) == pytest.approx(iqm(values) * scale + shift, abs=1e-6)


@settings(deadline=None)
@given(k=st.integers(1, 1000), num_rejections=st.integers(0, 50))
def test_a_rejection_raises_the_level_and_a_later_number_lowers_it(k: int, num_rejections: int) -> None:
    budget = ELond(alpha=0.1)
    level = budget.level(k, num_rejections)
    assert budget.level(k, num_rejections + 1) >= level >= budget.level(k + 1, num_rejections)
    assert 0.0 < level <= 1.0
