"""Levels move on evidence, inside their bounds, and do not flutter on noise."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from coharness.harness.curriculum import level_step
from coharness.records.harness import SamplingGenes, TaskGene
from coharness.stats.beta import BetaEvidence

GENES = SamplingGenes(level_up=0.6, level_down=0.2, min_groups=10)
SOLVED = BetaEvidence(successes=30.0)
FAILED = BetaEvidence(failures=30.0)
MIDDLE = BetaEvidence(successes=12.0, failures=18.0)


def gene(high: int, low: int = 1) -> TaskGene:
    return TaskGene(family="count", level_low=low, level_high=high, weight=1.0)


def step(high: int, *at_top: BetaEvidence, num_groups: float = 100, low: int = 1, max_level: int = 8) -> int:
    return level_step(gene(high, low), at_top, GENES, num_groups, max_level)


def test_success_that_is_surely_high_moves_up_and_surely_low_moves_down() -> None:
    assert step(3, SOLVED) == 1
    assert step(3, FAILED) == -1
    assert step(3, MIDDLE) == 0


def test_what_is_likely_but_not_sure_moves_nothing() -> None:
    assert step(3, BetaEvidence(successes=7.0, failures=3.0)) == 0
    assert step(3, BetaEvidence(successes=1.0, failures=9.0)) == 0


def test_no_move_before_the_dwell_is_over() -> None:
    assert [step(3, SOLVED, num_groups=n) for n in (0, 9, 9.5, 10)] == [0, 0, 0, 1]
    assert [step(3, FAILED, num_groups=n) for n in (0, 9, 9.5, 10)] == [0, 0, 0, -1]


def test_no_move_over_a_bound() -> None:
    assert step(8, SOLVED) == 0
    assert step(2, SOLVED, max_level=2) == 0
    assert step(1, FAILED) == 0
    assert step(3, FAILED, low=3) == 0


def test_a_handful_of_observations_moves_nothing() -> None:
    assert step(3, BetaEvidence(successes=3.9)) == 0
    assert step(3, BetaEvidence(failures=3.9)) == 0
    assert step(3) == 0
    assert step(3, BetaEvidence()) == 0


def test_the_best_format_speaks_for_the_family() -> None:
    assert step(3, FAILED, SOLVED) == 1
    assert step(3, FAILED, MIDDLE) == 0
    assert step(3, FAILED, FAILED) == -1


def moves(chance: Callable[[int], float], num_groups: int, seed: int, start: int = 2) -> list[tuple[int, int]]:
    """(group, level after it) of each move when success at a level has the given chance; evidence is kept per level."""
    rng = np.random.default_rng(seed)
    level, moved_at, found = start, 0, []
    evidence: dict[int, BetaEvidence] = {}
    for group in range(1, num_groups + 1):
        solved = rng.random() < chance(level)
        seen = evidence.get(level, BetaEvidence()).decayed(0.98)
        evidence[level] = seen.observed(float(solved), float(not solved))
        change = level_step(gene(level), [evidence[level]], GENES, group - moved_at, 8)
        if change:
            level, moved_at = level + change, group
            found.append((group, level))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_two_moves_are_never_nearer_than_the_dwell_and_levels_stay_in_range(seed: int) -> None:
    # The worst case for flutter: each level looks solved or hopeless at random.
    chances = np.random.default_rng(seed).random(9)
    found = moves(lambda level: float(chances[level]), 500, seed)
    groups = [0] + [group for group, _ in found]
    levels = [2] + [level for _, level in found]
    assert all(b - a >= GENES.min_groups for a, b in pairwise(groups))
    assert all(abs(b - a) == 1 for a, b in pairwise(levels))
    assert all(1 <= level <= 8 for level in levels)


def test_success_inside_the_band_makes_levels_rest() -> None:
    counts = [len(moves(lambda _: 0.4, 1_000, seed)) for seed in range(20)]
    assert np.mean(counts) < 4


def test_a_learner_between_two_levels_does_not_flutter() -> None:
    # Surely good at level 3, so-so at level 4: up once, and there it stays.
    for seed in range(20):
        found = moves(lambda level: 0.95 if level <= 3 else 0.4, 600, seed)
        assert [level for _, level in found[:2]] == [3, 4]
        assert len(found) <= 8


def test_a_learner_that_masters_everything_reaches_the_top() -> None:
    found = moves(lambda _: 1.0, 200, 0)
    assert [level for _, level in found] == [3, 4, 5, 6, 7, 8]
