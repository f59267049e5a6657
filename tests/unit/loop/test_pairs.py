"""Pairs of the gate: which are drawn, what they count for, and that their order of arrival is nothing."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.loop.core import Evolution
from coharness.loop.fold import apply
from coharness.loop.pairs import is_tie, pair_cell, pair_task
from coharness.loop.state import OpenTest, State
from coharness.records.proposals import Proposal, ProposalKind, VerdictKind
from coharness.records.task import Pool, pool_of
from coharness.records.work import Purpose, WorkBatch, WorkItem
from coharness.stats.sequential import PairedCounts
from coharness.testing.simulated import SimulatedFleet
from tests.unit.loop.gate_cases import challenge, core_of, edit, lease
from tests.unit.loop.handmade import decide, ended


def test_the_cell_of_a_pair_is_a_pure_function_of_proposal_and_index(tmp_path: Path) -> None:
    core, other = core_of(tmp_path), core_of(tmp_path)
    proposal = challenge(core)
    before = [pair_cell(proposal, core.context, index) for index in range(200)]
    core.tell(ended(lease(core), lambda item: item.arm == "challenger"))
    assert [pair_cell(proposal, core.context, index) for index in range(200)] == before
    assert [pair_cell(proposal, other.context, index) for index in range(200)] == before
    assert [pair_cell(replace(proposal, id=9), core.context, index) for index in range(200)] != before  # type: ignore[arg-type]


def test_cells_are_drawn_uniformly_from_the_mix(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    num, mix = 9_000, core.context.space.mix
    proposal = challenge(core)
    seen = Counter(pair_cell(proposal, core.context, index) for index in range(num))
    assert seen.keys() == set(mix)
    share = 1 / len(mix)
    assert all(abs(n / num - share) < 4 * (share * (1 - share) / num) ** 0.5 for n in seen.values())


def test_both_arms_answer_one_gate_task_greedily_with_one_seed(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    challenge(core)
    arms: dict[int, dict[str, WorkItem]] = {}
    for item in lease(core):
        arms.setdefault(item.pair, {})[item.arm] = item
    assert len(arms) > 64
    for pair, both in arms.items():
        assert both.keys() == {"challenger", "incumbent"}
        one, two = both["challenger"], both["incumbent"]
        assert (one.task, one.seed, one.temperature, one.format) == (two.task, two.seed, 0.0, two.format)
        assert one.version != two.version
        assert pool_of(one.task.id) is (Pool.GATE if pair >= 0 else Pool.ANCHOR)
        assert one.purpose is (Purpose.GATE if pair >= 0 else Purpose.ANCHOR)


def test_no_gate_task_is_ever_used_twice(tmp_path: Path) -> None:
    core = core_of(tmp_path, tasks=[{"type": "builtin", "families": ["parity"], "max_level": 1}])
    used: list[str] = []
    for _ in range(4):
        proposal = challenge(core)
        used += [item.task.id for item in lease(core) if item.arm == "challenger" and item.pair >= 0]
        decide(core, proposal, VerdictKind.REJECTED)
    assert len(used) == 4 * 64
    assert len(set(used)) == len(used)


@pytest.mark.parametrize("room", [0, 1, 2, 7, 31])
def test_no_half_pair_is_issued(tmp_path: Path, room: int) -> None:
    core = core_of(tmp_path)
    challenge(core)
    items = lease(core, room)
    assert len(items) <= room
    assert all(n == 2 for n in Counter(item.pair for item in items).values())


def test_pairs_go_on_where_they_ended_and_end_at_the_cap(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    challenge(core)
    seen = []
    while items := lease(core, 10):
        seen += [item.pair for item in items if item.arm == "challenger" and item.pair >= 0]
    assert seen == list(range(64))


def test_what_an_edit_leaves_alone_ties_without_being_run(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    proposal = edit(core, "count", "sort")
    items = lease(core)
    assert {item.task.family for item in items} == {"count", "sort"}
    assert {item.format for item in items if item.arm == "challenger"} == {"trace"}
    assert {item.format for item in items if item.arm == "incumbent"} == {"plain"}
    core.tell(ended(items, lambda item: item.arm == "challenger"))
    test = core.state.tests[proposal.id]
    ties = sum(is_tie(proposal, core.context, index) for index in range(64))
    assert test.counts == PairedCounts(wins=64 - ties, losses=0, ties=ties)
    assert 0 < ties < 64
    assert core.state.charged_tests == 2 * (64 - ties)
    for family in core.context.space.families:
        counted = test.by_family.get(family, PairedCounts())
        assert (counted.wins == 0) == (family not in ("count", "sort"))


def test_a_pair_of_weights_never_ties_by_construction(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    proposal = challenge(core)
    assert not any(is_tie(proposal, core.context, index) for index in range(100))


def test_a_pair_that_lost_an_arm_is_no_score(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    proposal = challenge(core)
    items = lease(core)
    core.tell(ended(items, lambda item: None if item.pair == 5 and item.arm == "incumbent" else True))
    test = core.state.tests[proposal.id]
    assert test.prefix == 64
    assert test.counts == PairedCounts(ties=63)
    # The arm that failed is not paid for.
    assert core.state.charged_tests == len(items) - 1


def test_pair_tasks_avoid_what_was_used(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    proposal = challenge(core)
    task = pair_task(core.state.used_gate_tasks, proposal, core.context, 0)
    core.state.used_gate_tasks.add(task.id)
    other = pair_task(core.state.used_gate_tasks, proposal, core.context, 0)
    assert other.id != task.id
    assert (other.family, other.level, other.pool) == (task.family, task.level, Pool.GATE)
    anchors = [
        pair_task(core.state.used_gate_tasks, p, core.context, -1)
        for p in (proposal, replace(proposal, kind=ProposalKind.NULL))
    ]
    assert anchors[0] == anchors[1]
    assert anchors[0].pool is Pool.ANCHOR


# Order --------------------------------------------------------------------------------------------------------------


def outcome_of(item: WorkItem) -> bool | None:
    """A fixed outcome of every arm of every pair: some fail, the challenger wins more often."""
    draw = np.random.default_rng([abs(item.pair), item.pair < 0, item.arm == "challenger"]).random()
    return None if draw < 0.02 else bool(draw < (0.6 if item.arm == "challenger" else 0.45))


@pytest.fixture(scope="module")
def leased(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evolution, Proposal, list[WorkItem]]:
    core = core_of(tmp_path_factory.mktemp("order"))
    return core, challenge(core), lease(core)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), batch=st.sampled_from([1, 2, 7, 40]))
def test_what_a_look_sees_does_not_depend_on_the_order_of_arrival(
    leased: tuple[Evolution, Proposal, list[WorkItem]], seed: int, batch: int
) -> None:
    core, proposal, items = leased

    def looks(order: list[WorkItem]) -> tuple[OpenTest, dict[int, PairedCounts]]:
        state: State = deepcopy(core.state)
        seen = {}
        for start in range(0, len(order), batch):
            apply(state, core.context, ended(order[start : start + batch], outcome_of))
            look = state.tests[proposal.id].look
            if look is not None:
                seen[look[0].num_pairs] = look[0]
        return state.tests[proposal.id], seen

    straight, by_size = looks(items)
    shuffled, other = looks([items[int(i)] for i in np.random.default_rng(seed).permutation(len(items))])
    assert (shuffled.counts, shuffled.by_family, shuffled.anchors, shuffled.prefix) == (
        straight.counts,
        straight.by_family,
        straight.anchors,
        64,
    )
    # A late batch may pass over a look; those that are taken see the same.
    assert all(by_size.get(size, counts) == counts for size, counts in other.items())
    assert straight.counts.num_pairs < 64


def test_nothing_is_counted_past_a_pair_that_is_still_out(
    leased: tuple[Evolution, Proposal, list[WorkItem]],
) -> None:
    core, proposal, items = leased
    state = deepcopy(core.state)
    apply(state, core.context, ended([i for i in items if i.pair not in (0, 40)], lambda item: True))
    test = state.tests[proposal.id]
    assert (test.prefix, test.counts.num_pairs, test.look) == (0, 0, None)
    apply(state, core.context, ended([i for i in items if i.pair == 0], lambda item: True))
    assert (test.prefix, test.counts) == (40, PairedCounts(ties=40))
    assert test.look is not None
    assert test.look[0].num_pairs == 32


def answered(core: Evolution, items: list[WorkItem], lag: int) -> None:
    """Let a simulated fleet answer these items, with a lag not in the order they were given."""
    fleet = SimulatedFleet(seed=lag, lag=lag)
    for start in range(0, len(items), 16):
        part = tuple(items[start : start + 16])
        known_weights = {i.version: core.state.versions[i.version].weights for i in part}
        fleet.submit([WorkBatch(id=start, items=part, harnesses={}, weights=known_weights, lease_s=1.0)])
    while events := fleet.poll(0):
        for event in events:
            core.tell(event)


def test_a_fleet_that_answers_in_another_order_shows_the_same(tmp_path: Path) -> None:
    counts = []
    for lag in (0, 6):
        core = core_of(tmp_path)
        proposal = edit(core, "count", "parity")
        answered(core, lease(core), lag)
        test = core.state.tests[proposal.id]
        counts.append((test.counts, test.by_family))
    assert counts[0] == counts[1]
    assert counts[0][0].num_pairs == 64
