"""Fitness of real-valued reports: weighted sums by another way, decay, inheritance, bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coharness.evolution.fitness_gaussian import GaussianEvidence, GaussianFitness, merged

reports = st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(0, 20)), min_size=1, max_size=12)


def folded(observed: list[tuple[float, int]], half_life: float = 4.0) -> GaussianEvidence:
    evidence = GaussianEvidence()
    for score, version in observed:
        evidence = evidence.observed(score, version, half_life)
    return evidence


@given(reports)
def test_the_fold_is_the_weighted_sums_whatever_the_order(observed: list[tuple[float, int]]) -> None:
    newest = max(v for _, v in observed)
    w = np.asarray([0.5 ** ((newest - v) / 4.0) for _, v in observed])
    y = np.asarray([s for s, _ in observed])
    found = folded(observed).faded(newest, 4.0)
    mean = float(np.average(y, weights=w))
    assert found.weight == pytest.approx(w.sum())
    assert found.squares == pytest.approx((w**2).sum())
    assert found.mean == pytest.approx(mean, abs=1e-9)
    assert found.scatter == pytest.approx((w * (y - mean) ** 2).sum(), rel=1e-6, abs=1e-6)
    again = folded(observed[::-1])
    assert again.mean == pytest.approx(found.mean, abs=1e-9)


def test_without_decay_it_is_the_mean_and_its_standard_error() -> None:
    y = np.random.default_rng(0).normal(3, 2, 200)
    evidence = folded([(float(s), 0) for s in y])
    found = evidence.read(noise=5.0, prior_reports=1e-9)
    assert found.mean == pytest.approx(y.mean())
    assert math.sqrt(found.variance) == pytest.approx(y.std(ddof=1) / math.sqrt(200))
    assert found.quantile(0.1) == pytest.approx(stats.norm(found.mean, math.sqrt(found.variance)).ppf(0.1))


def test_a_single_report_is_as_uncertain_as_the_user_said_and_none_is_no_evidence() -> None:
    found = folded([(1.0, 0)]).read(noise=0.5)
    assert (found.mean, found.variance, found.num_empty) == (1.0, 0.25, 0)
    assert folded([(1.0, 0)]).read(noise=0.0).variance == 0
    nothing = GaussianEvidence().read(noise=0.5)
    assert (nothing.num_empty, nothing.variance) == (1, math.inf)


def test_with_a_half_life_of_zero_the_last_report_stands_alone() -> None:
    found = folded([(1.0, 0), (5.0, 2), (3.0, 1)], half_life=0)
    assert (found.mean, found.weight) == (5.0, 1.0)


def test_the_posterior_probability_is_that_of_two_normals() -> None:
    a = GaussianFitness(mean=0.6, variance=0.01, num_effective=3)
    b = GaussianFitness(mean=0.5, variance=0.03, num_effective=3)
    assert a.probability_above(b) == pytest.approx(stats.norm.cdf(0.1 / 0.2))
    sure = GaussianFitness(mean=0.6, variance=0, num_effective=1)
    assert sure.probability_above(sure) == 0.5
    assert sure.quantile(0.1) == 0.6
    with pytest.raises(ValueError, match="inside"):
        a.quantile(0.0)


def test_a_clone_has_its_parents_mean_and_a_larger_error() -> None:
    parent = folded([(float(s), v) for v, s in enumerate(np.random.default_rng(1).normal(2, 1, 12))])
    child = parent.inherited(0.3, at=0.0)
    mine, theirs = child.read(noise=1.0), parent.read(noise=1.0)
    assert mine.mean == theirs.mean
    assert mine.num_effective == pytest.approx(0.3 * theirs.num_effective)
    assert mine.variance > 2 * theirs.variance
    assert parent.inherited(0.0, at=0.0).read(noise=1.0).num_empty == 1
    later = child.observed(9.0, 0.0, 4.0)
    assert abs(later.mean - mine.mean) > abs(parent.observed(9.0, parent.at, 4.0).mean - theirs.mean)


def test_a_merge_starts_between_its_parents_and_less_certain_than_either() -> None:
    a, b = folded([(1.0, 0)] * 6), folded([(3.0, 0)] * 6)
    child = merged([a, b], [1.0, 3.0], 0.1, at=0.0)
    assert child.mean == pytest.approx(2.5)
    assert child.read(noise=0.1).variance > max(a.read(noise=0.1).variance, b.read(noise=0.1).variance)
    assert merged([a, GaussianEvidence()], [0.5, 0.5], 0.1, at=0.0).mean == 1.0
    assert merged([GaussianEvidence()], [1.0], 0.1, at=0.0).read(noise=1.0).num_empty == 1


def test_reports_and_shares_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        GaussianEvidence().observed(math.nan, 0, 1.0)
    with pytest.raises(ValueError, match="share"):
        GaussianEvidence().inherited(1.5, 0)
