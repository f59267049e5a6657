"""Selection rules in a run: one exploit at a time, the weakest first, the same answer however often it is asked."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from coharness.evolution.exploit import Candidate
from coharness.evolution.fitness import Fitness
from coharness.evolution.selection.in_run import RUN_RULES, exploit_by_rule
from coharness.evolution.selection.tournament import Tournament
from coharness.evolution.selection.truncation import Truncation
from coharness.records.ids import PolicyId, derive_seed
from coharness.stats.beta import BetaEvidence, mean_of_cells


def member(
    name: str, *right: float, busy: bool = False, newborn: bool = False, ancestor: str = "", empty: int = 0
) -> Candidate:
    """A member that solved so many of 40 tasks in each cell."""
    cells = tuple(BetaEvidence(successes=r, failures=40 - r) for r in right)
    mean, variance = mean_of_cells(cells)
    fitness = Fitness(mean=mean, variance=variance, cells=cells, num_empty=empty)
    policy = PolicyId(name)
    return Candidate(
        policy=policy, fitness=fitness, is_newborn=newborn, is_busy=busy, ancestor=PolicyId(ancestor or name)
    )


def dice(seed: int) -> Callable[[PolicyId], np.random.Generator]:
    return lambda policy: np.random.default_rng(derive_seed("test", seed, policy))


def chosen(rule: object, members: list[Candidate], seed: int = 0, cap: float = 1.0) -> tuple[str, str] | None:
    cases = {m.policy: m.fitness.cells for m in members}  # type: ignore[attr-defined]
    found = exploit_by_rule(rule, members, cases, cap, dice(seed))  # type: ignore[arg-type]
    return None if found is None else (found.loser, found.donor)


FIVE = [member("p0", 20, 20), member("p1", 38, 38), member("p2", 5, 5), member("p3", 22, 22), member("p4", 30, 30)]


def test_truncation_replaces_the_lowest_by_the_highest() -> None:
    assert chosen(Truncation(quantile=0.2), FIVE) == ("p2", "p1")
    assert chosen(Truncation(quantile=0.2), [m if m.policy != "p2" else replace(m, is_busy=True) for m in FIVE]) is None


def test_the_weakest_meets_its_opponent_first_and_loses_to_whomever_it_meets() -> None:
    met = {chosen(Tournament(), FIVE, seed) for seed in range(60)}
    assert met == {("p2", other) for other in ("p0", "p1", "p3", "p4")}


def test_a_specialist_survives_lexicase_and_a_member_that_is_best_nowhere_does_not() -> None:
    members = [member("p0", 38, 4, 4), member("p1", 4, 38, 38), member("p2", 4, 4, 4)]
    assert {chosen(RUN_RULES["lexicase"], members, seed) for seed in range(40)} == {("p2", "p0"), ("p2", "p1")}


@pytest.mark.parametrize("rule", list(RUN_RULES.values()), ids=list(RUN_RULES))
def test_whoever_may_not_go_stays_and_does_not_change_what_others_draw(rule: object) -> None:
    for seed in range(30):
        found = chosen(rule, FIVE, seed)
        if found is None:
            continue
        spared = [m if m.policy == found[0] else replace(m, is_newborn=True) for m in FIVE]
        assert chosen(rule, spared, seed) == found, "the one that goes draws the same, whoever else may go"
        for state in ({"is_busy": True}, {"is_newborn": True}):
            held = [replace(m, **state) if m.policy == found[0] else m for m in FIVE]  # type: ignore[arg-type]
            other = chosen(rule, held, seed)
            assert other is None or other[0] != found[0]
    nobody = [replace(m, is_busy=True) for m in FIVE]
    assert chosen(rule, nobody) is None


@pytest.mark.parametrize("rule", list(RUN_RULES.values()), ids=list(RUN_RULES))
def test_a_member_without_evidence_is_neither_copied_nor_replaced(rule: object) -> None:
    members = [member("p0", 1, 1, empty=1), member("p1", 20, 21), member("p2", 39, 39, empty=1), member("p3", 5, 5)]
    for seed in range(30):
        assert chosen(rule, members, seed) in (None, ("p3", "p1"))


def test_a_clan_that_is_large_enough_gives_no_more_copies() -> None:
    members = [member("p0", 38, 38), member("p1", 37, 37, ancestor="p0"), member("p2", 5, 5)]
    assert chosen(Truncation(quantile=0.3), members, cap=1.0) == ("p2", "p0")
    assert chosen(Truncation(quantile=0.3), members, cap=0.5) is None


def test_the_probability_is_that_of_the_pair() -> None:
    cases = {m.policy: m.fitness.cells for m in FIVE}  # type: ignore[attr-defined]
    found = exploit_by_rule(Truncation(quantile=0.2), FIVE, cases, 1.0, dice(0))
    assert found is not None
    assert found.probability == FIVE[1].fitness.probability_above(FIVE[2].fitness)
