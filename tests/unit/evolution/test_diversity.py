"""Diversity of behaviour: definitions, bounds, and what makes no sense."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from coharness.evolution.diversity import mean_disagreement, mean_jensen_shannon, useful_diversity


def test_jensen_shannon_agrees_with_scipys_distance() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(5), size=(4, 6))  # [members, probes, actions]
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    expected = np.mean([jensenshannon(p[i, k], p[j, k], base=2) ** 2 for i, j in pairs for k in range(6)])
    assert mean_jensen_shannon(p) == pytest.approx(expected)


def test_jensen_shannon_is_zero_for_twins_and_one_for_strangers() -> None:
    same = np.tile([[0.2, 0.8]], (3, 1, 1))
    assert mean_jensen_shannon(same) == pytest.approx(0)
    assert mean_jensen_shannon([[[1.0, 0.0]], [[0.0, 1.0]]]) == pytest.approx(1)
    assert mean_jensen_shannon(same[:1]) == 0


tables = st.integers(1, 6).flatmap(
    lambda t: st.lists(st.lists(st.integers(0, 1), min_size=t, max_size=t), min_size=1, max_size=5)
)


@given(tables)
def test_disagreement_and_useful_diversity_are_what_they_say(table: list[list[int]]) -> None:
    num, num_tasks = len(table), len(table[0])
    differ = [table[i][t] != table[j][t] for i in range(num) for j in range(num) if i != j for t in range(num_tasks)]
    assert mean_disagreement(table) == pytest.approx(sum(differ) / len(differ) if differ else 0)
    union = sum(any(row[t] for row in table) for t in range(num_tasks)) / num_tasks
    best = max(sum(row) for row in table) / num_tasks
    assert useful_diversity(table) == pytest.approx(union - best)


def test_specialists_are_useful_and_copies_are_not() -> None:
    assert useful_diversity([[1, 0], [0, 1]]) == 0.5
    assert useful_diversity([[1, 1], [0, 1]]) == 0
    assert mean_disagreement([["a", "b"], ["a", "c"]]) == 0.5


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: mean_jensen_shannon([[0.5, 0.5]]), "members, probes, actions"),
        (lambda: mean_jensen_shannon([[[0.5, 0.4]]]), "sums to 1"),
        (lambda: mean_disagreement([1, 2]), "members, tasks"),
        (lambda: useful_diversity([[0.5]]), "0 and 1"),
        (lambda: useful_diversity([[]]), "none of them 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call: object, match: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=match):
        call()
