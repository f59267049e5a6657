"""Fitness: the mean of cell posteriors over one fixed mix, the same for every pairing."""

import numpy as np
import pytest

from coharness.evolution.evidence import EvidenceTable
from coharness.evolution.fitness import fitness
from coharness.records.ids import PolicyId

P0, P1 = PolicyId("p0"), PolicyId("p1")
CELLS = (("a", 1), ("a", 2), ("b", 1))


def table(**outcomes: tuple[tuple[str, int], int, int]) -> EvidenceTable:
    made = EvidenceTable(4.0)
    for cell, successes, failures in outcomes.values():
        made.observe(P0, cell, 0, successes, failures)
    return made


def test_the_mean_is_over_cells_and_not_over_episodes() -> None:
    # 100 easy successes do not outweigh two cells of failures.
    made = table(easy=(("a", 1), 98, 0), hard=(("a", 2), 0, 8), other=(("b", 1), 0, 8))
    expected = np.mean([99 / 100, 1 / 10, 1 / 10])
    assert fitness(made, P0, 0, CELLS).mean == pytest.approx(expected)


def test_mean_and_variance_agree_with_sampling_the_posteriors() -> None:
    made = table(x=(("a", 1), 5, 2), y=(("a", 2), 0, 3), z=(("b", 1), 9, 9))
    rng = np.random.default_rng(0)
    draws = np.mean([rng.beta(6, 3, 200_000), rng.beta(1, 4, 200_000), rng.beta(10, 10, 200_000)], axis=0)
    known = fitness(made, P0, 0, CELLS)
    assert known.mean == pytest.approx(draws.mean(), abs=1e-3)
    assert known.variance == pytest.approx(draws.var(), rel=0.02)


def test_evidence_outside_the_mix_does_not_count() -> None:
    made = table(x=(("a", 1), 3, 1))
    before = fitness(made, P0, 0, CELLS)
    made.observe(P0, ("c", 1), 0, 1_000, 0)
    assert fitness(made, P0, 0, CELLS) == before


def test_a_cell_is_empty_below_one_effective_observation() -> None:
    made = table(x=(("a", 1), 1, 0), y=(("a", 2), 0, 1))
    assert fitness(made, P0, 0, CELLS).num_empty == 1
    # Evidence that has faded away leaves an empty cell behind.
    assert fitness(made, P0, 1, CELLS).num_empty == 3
    assert fitness(made, P1, 0, CELLS).num_empty == 3


def test_more_success_in_any_cell_makes_it_more_probably_better() -> None:
    made = table(x=(("a", 1), 5, 5), y=(("a", 2), 5, 5), z=(("b", 1), 5, 5))
    made.inherit(P1, P0, 0)
    equal = fitness(made, P1, 0, CELLS).probability_above(fitness(made, P0, 0, CELLS))
    assert equal == pytest.approx(0.5)
    made.observe(P1, ("b", 1), 0, 10, 0)
    better, base = (fitness(made, p, 0, CELLS) for p in (P1, P0))
    assert better.probability_above(base) > 0.6
    assert better.probability_above(base) + base.probability_above(better) == pytest.approx(1.0)


def test_reading_fitness_changes_no_evidence() -> None:
    made = table(x=(("a", 1), 3, 1))
    first = fitness(made, P0, 7, CELLS)
    assert fitness(made, P0, 7, CELLS) == first
    assert made.counts[P0] == {("a", 1): (3.0, 1.0, 0)}
