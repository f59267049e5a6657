"""Several objectives: fronts and crowding against a definition and against pymoo, and who gives way."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.evolution.selection.contract import Population, Score
from coharness.evolution.selection.nsga2 import Nsga2, ranks
from coharness.evolution.selection.pareto import crowding, domination, fronts
from tests.unit.selection.people import person, rng


def rows(values: object) -> list[list[Score]]:
    return [[Score(float(x)) for x in row] for row in np.asarray(values)]


points = st.integers(1, 3).flatmap(
    lambda m: st.lists(st.lists(st.integers(0, 5), min_size=m, max_size=m), min_size=1, max_size=12)
)


def brute_fronts(values: np.ndarray) -> list[set[int]]:
    left, found = set(range(len(values))), []
    while left:
        front = {
            i for i in left
            if not any((values[j] >= values[i]).all() and (values[j] > values[i]).any() for j in left)
        }  # fmt: skip
        found.append(front)
        left -= front
    return found


@settings(max_examples=100)
@given(points)
def test_fronts_are_what_the_definition_says(values: list[list[int]]) -> None:
    assert [set(front) for front in fronts(rows(values))] == brute_fronts(np.asarray(values))


def brute_crowding(values: np.ndarray) -> list[float]:
    found = [0.0] * len(values)
    for column in values.T:
        order = sorted(range(len(column)), key=lambda i: column[i])
        found[order[0]] = found[order[-1]] = float("inf")
        width = column.max() - column.min()
        for before, (i, after) in zip(order, pairwise(order[1:]), strict=False):
            if width > 0:
                found[i] += (column[after] - column[before]) / width
    return found


@settings(max_examples=100)
@given(points)
def test_crowding_is_what_the_definition_says(values: list[list[int]]) -> None:
    assert crowding(rows(values)) == pytest.approx(brute_crowding(np.asarray(values)))


def test_fronts_and_crowding_agree_with_pymoo() -> None:
    nds = pytest.importorskip("pymoo.util.nds.non_dominated_sorting", reason="pymoo is not installed")
    metrics = pytest.importorskip("pymoo.operators.survival.rank_and_crowding.metrics")
    generator = rng(4)
    for num_objectives in (2, 3):
        values = generator.random((60, num_objectives))
        theirs = nds.NonDominatedSorting().do(-values)
        assert [set(front) for front in fronts(rows(values))] == [set(map(int, front)) for front in theirs]
        first = values[theirs[0]]
        # pymoo divides the sum by the number of objectives.
        expected = metrics.calc_crowding_distance(-first) * num_objectives
        assert crowding(rows(first)) == pytest.approx(list(expected))


def test_two_members_or_fewer_are_infinitely_far_apart() -> None:
    assert crowding(rows([[1, 2], [2, 1]])) == [float("inf")] * 2
    assert crowding(rows([[1, 2]])) == [float("inf")]


def test_what_is_within_the_noise_dominates_nobody() -> None:
    table = [[Score(1.0, 0.1), Score(1.0, 0.1)], [Score(0.9, 0.1), Score(0.8, 0.1)], [Score(0.9, 0.1), Score(0.2, 0.1)]]
    assert domination(table).tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert domination(table, 1.64).tolist() == [[False, False, True], [False, False, True], [False, False, False]]


def test_members_that_dominate_in_a_circle_are_one_front() -> None:
    # Each is surely better than the next on one objective, and within the noise on the two others.
    table = [[Score(x, 0.5) for x in row] for row in ([0.8, 0.4, 0.0], [0.0, 0.8, 0.4], [0.4, 0.0, 0.8])]
    assert domination(table, 1.0).sum() == 3
    assert fronts(table, 1.0) == [[0, 1, 2]]


def test_the_last_by_front_gives_way_to_one_of_a_better_front_and_the_first_front_never() -> None:
    members = tuple(
        person(f"p{i}", 0.5, objectives=scores)
        for i, scores in enumerate([(1.0, 0.0), (0.0, 1.0), (0.6, 0.6), (0.5, 0.5), (0.1, 0.1)])
    )
    population = Population(members=members)
    rule = Nsga2(z=0.0)
    for name in ("p0", "p1", "p2"):
        assert all(rule.choose(population, name, rng(seed)) is None for seed in range(30))
    changes = [rule.choose(population, "p4", rng(seed)) for seed in range(60)]
    parents = {c.parents[0] for c in changes if c is not None}
    assert parents == {"p0", "p1", "p2", "p3"}
    rank = ranks(list(members), 0.0)
    assert [rank[f"p{i}"][0] for i in range(5)] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("scores", [[[1.0], [1.0, 2.0]], [[], []], [[np.nan], [1.0]]])
def test_objectives_that_do_not_fit_are_refused(scores: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="objectives"):
        fronts([[Score(x) for x in row] for row in scores])
