"""What is true of every selection rule: immunity, caps on clones, immigrants, equal turns."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.evolution.selection.contract import Change, Forgetful, Genes, Population
from coharness.evolution.selection.rules import Ruled, num_clans, turn_probability
from coharness.evolution.selection.tournament import Tournament
from coharness.evolution.selection.truncation import Truncation
from tests.unit.selection.people import people, person, rng


def test_a_newborn_and_a_busy_member_go_on_as_they_are_but_may_be_copied() -> None:
    population = people([0.1, 0.9, 0.5, 0.6])
    rule = Ruled(inner=Truncation(quantile=0.25), newborn_work=50)
    assert rule.choose(population, "p0", rng()) is not None
    for spared in (replace(population.members[0], age=49.0), replace(population.members[0], is_busy=True)):
        assert rule.choose(replace(population, members=(spared, *population.members[1:])), "p0", rng()) is None
    young = replace(population.members[1], age=0.0, is_busy=True)
    change = rule.choose(
        replace(population, members=(population.members[0], young, *population.members[2:])), "p0", rng()
    )
    assert change is not None
    assert change.parents == ("p1",)


def test_a_clan_that_is_full_is_copied_no_more_and_the_next_best_is() -> None:
    members = (
        person("p0", 0.1), person("p1", 0.2), person("p2", 0.9, clan="p2"), person("p3", 0.8, clan="p2"), person("p4", 0.5),
    )  # fmt: skip
    population = Population(members=members)
    assert Ruled(inner=Truncation(quantile=0.2)).choose(population, "p0", rng()).parents == ("p2",)  # type: ignore[union-attr]
    capped = Ruled(inner=Truncation(quantile=0.2), clone_cap=0.4).choose(population, "p0", rng())
    assert capped is not None
    assert capped.parents == ("p4",)


def test_in_a_population_of_two_the_better_may_always_be_copied() -> None:
    change = Ruled(inner=Truncation(quantile=0.5), clone_cap=0.1).choose(people([0.1, 0.9]), "p0", rng())
    assert change is not None
    assert change.parents == ("p1",)


@settings(max_examples=60)
@given(
    clans=st.lists(st.sampled_from("abc"), min_size=2, max_size=8),
    cap=st.floats(0.1, 1.0),
    seed=st.integers(0, 10_000),
)
def test_no_change_ever_breaks_the_cap(clans: list[str], cap: float, seed: int) -> None:
    generator = rng(seed)
    members = tuple(person(f"p{i}", float(generator.random()), clan=clan) for i, clan in enumerate(clans))
    change = Ruled(inner=Tournament(), clone_cap=cap).choose(Population(members=members), "p0", generator)
    if change is not None:
        clan = next(m.clan for m in members if m.name == change.parents[0])
        after = sum(m.clan == clan for m in members[1:]) + 1
        assert after <= max(cap * len(members), 2) or clan == members[0].clan


def test_immigrants_come_when_few_founders_are_left_and_only_then() -> None:
    rule = Ruled(inner=Truncation(quantile=0.25), immigrants_below=1 / 3, immigrant_rate=0.5)
    clones = Population(members=tuple(person(f"p{i}", i / 10, clan="p3") for i in range(6)))
    changes = [rule.choose(clones, "p0", rng(seed)) for seed in range(400)]
    immigrants = [c for c in changes if c is not None and not c.parents]
    assert all(c.genes is Genes.DRAW for c in immigrants)
    assert len(immigrants) == pytest.approx(200, abs=50)
    founders = people([i / 10 for i in range(6)])
    assert all(c is None or c.parents for c in (rule.choose(founders, "p0", rng(seed)) for seed in range(100)))
    assert num_clans(clones) == 1
    assert num_clans(founders) == 6


def test_a_turn_counts_in_proportion_to_the_time_that_it_took() -> None:
    population = people([0.1, 0.9, 0.5, 0.6], duration_s=1.0)
    slow = replace(population.members[3], duration_s=4.0)
    population = replace(population, members=(*population.members[:3], slow))
    rule = Ruled(inner=Truncation(quantile=0.25), equal_turns=True)
    taken = sum(rule.choose(population, "p0", rng(seed)) is not None for seed in range(2_000))
    assert taken == pytest.approx(500, abs=70)
    assert turn_probability(slow, population) == 1.0
    assert turn_probability(population.members[0], people([0.1])) == 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copycat(Forgetful):
    """Copies anybody, whatever it is worth: what is left is drift."""

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        others = [m.name for m in population.members if m.name != ready]
        return Change(member=ready, parents=(others[int(rng.integers(len(others)))],), weights=(1.0,), genes=Genes.KEEP)


def share_of_quick(equal_turns: bool, seed: int) -> float:
    """Members that differ in nothing but the seconds between reports, 1 or 4; the share of quick ones in the end."""
    generator = rng(seed)
    seconds = [1.0] * 4 + [4.0] * 4
    due = [s * float(generator.random()) for s in seconds]
    rule = Ruled(inner=Copycat(), equal_turns=equal_turns)
    for _ in range(60):
        i = int(np.argmin(due))
        members = tuple(person(f"p{k}", 0.5, duration_s=s) for k, s in enumerate(seconds))
        change = rule.choose(Population(members=members), f"p{i}", generator)
        if change is not None:
            seconds[i] = seconds[int(change.parents[0][1:])]
        due[i] += seconds[i]
    return sum(s == 1.0 for s in seconds) / len(seconds)


def test_on_flat_ground_equal_turns_take_the_drift_between_quick_and_slow_away() -> None:
    plain = np.mean([share_of_quick(False, seed) for seed in range(60)])
    equal = np.mean([share_of_quick(True, seed) for seed in range(60)])
    # Whoever reports often is overwritten often: without the correction quick members die out though nobody is better.
    assert plain < 0.3
    assert abs(equal - 0.5) < 0.18
