"""The meter of evaluation-time bias."""

import pytest
from scipy import stats

from coharness.evolution.time_bias import meter


def test_it_is_negative_where_quick_members_have_more_children() -> None:
    durations = {f"p{i}": float(i + 1) for i in range(8)}
    parents = [f"p{i}" for i in range(8) for _ in range(8 - i)]
    found = meter(durations, dict.fromkeys(durations, 10), parents)
    assert found.correlation == pytest.approx(-1)
    assert found.p_value < 1e-3
    assert found.unevenness == 1


def test_it_agrees_with_scipy_and_counts_turns() -> None:
    durations = {"a": 1.0, "b": 4.0, "c": 2.0, "d": 3.0}
    found = meter(durations, {"a": 40, "b": 10, "c": 20, "d": 13}, ["b", "b", "a", "d"])
    expected = stats.kendalltau([1, 4, 2, 3], [1, 2, 0, 1])
    assert (found.correlation, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.unevenness == 4


def test_where_there_is_nothing_to_tell_it_says_so() -> None:
    assert meter({"a": 1.0, "b": 1.0}, {}, ["a"]).p_value == 1
    assert meter({"a": 1.0, "b": 2.0}, {}, []).p_value == 1
    with pytest.raises(ValueError, match="durations"):
        meter({}, {}, [])
