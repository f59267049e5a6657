"""Intervals of one proportion against scipy.stats, and the shape every interval keeps."""

import math
import pickle
from collections.abc import Callable

import pytest
from scipy import stats

from coharness.stats.interval import Interval
from coharness.stats.proportions import clopper_pearson, wilson

COUNTS = [(0, 1), (1, 1), (0, 20), (20, 20), (1, 20), (13, 1000), (400, 1000), (3, 7)]


@pytest.mark.parametrize(("method", "name"), [(clopper_pearson, "exact"), (wilson, "wilson")])
@pytest.mark.parametrize(("k", "n"), COUNTS)
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_the_interval_is_scipys(
    method: Callable[[int, int, float], Interval], name: str, k: int, n: int, level: float
) -> None:
    expected = stats.binomtest(k, n).proportion_ci(level, method=name)
    interval = method(k, n, level)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert interval.value == k / n


def test_the_exact_interval_covers_every_true_rate_at_least_as_often_as_it_says() -> None:
    intervals = [clopper_pearson(k, 25) for k in range(26)]
    for rate in (0.01, 0.05, 0.3, 0.5, 0.77, 0.99):
        covered = sum(stats.binom.pmf(k, 25, rate) for k in range(26) if not intervals[k].excludes(rate))
        assert covered >= 0.95


@pytest.mark.parametrize("method", [clopper_pearson, wilson])
@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(method: Callable[[int, int], Interval], k: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        method(k, n)


def test_an_interval_excludes_what_is_strictly_outside() -> None:
    interval = Interval(low=0.0, value=0.25, high=0.5, level=0.95)
    assert [interval.excludes(x) for x in (-0.1, 0.0, 0.3, 0.5, 0.6)] == [True, False, False, False, True]


def test_an_interval_prints_its_estimate_ends_and_level() -> None:
    assert str(Interval(low=-0.01, value=0.031, high=0.0721, level=0.975)) == "0.031 [-0.010, 0.072] (97.5%)"


def test_an_interval_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="in that order"):
        Interval(low=0.3, value=0.2, high=0.5, level=0.95)
    with pytest.raises(ValueError, match="finite"):
        Interval(low=-math.inf, value=0.2, high=0.5, level=0.95)
    with pytest.raises(ValueError, match="level"):
        Interval(low=0.1, value=0.2, high=0.5, level=1.0)


def test_containing_widens_only_to_hold_the_estimate() -> None:
    assert Interval.containing(0.6, 0.2, 0.5, 0.9) == Interval(low=0.2, value=0.6, high=0.6, level=0.9)
    assert Interval.containing(0.3, 0.2, 0.5, 0.9) == Interval(low=0.2, value=0.3, high=0.5, level=0.9)


def test_an_interval_survives_pickling() -> None:
    interval = clopper_pearson(3, 7)
    assert pickle.loads(pickle.dumps(interval)) == interval
