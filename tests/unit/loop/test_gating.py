"""The gate: which pairs are drawn, what they count for, and what a verdict changes."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.harness.operators import set_format
from coharness.loop import gating
from coharness.loop.core import Evolution
from coharness.loop.fold import apply
from coharness.loop.items import ItemMaker
from coharness.loop.journal import read_frames
from coharness.loop.pairs import is_tie, pair_cell, pair_task
from coharness.loop.ranking import Ranking
from coharness.loop.state import CHAMPION, OpenTest, State
from coharness.records import events as ev
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef
from coharness.records.proposals import Proposal, ProposalKind, VerdictKind
from coharness.records.task import Pool, pool_of
from coharness.records.work import Purpose, Serving, WorkBatch, WorkItem
from coharness.stats.sequential import PairedCounts
from coharness.testing.runs import simulated_run
from coharness.testing.simulated import SimulatedFleet
from tests.unit.loop.handmade import begun, decide, ended, issue, open_test, publish

SMALL = {"gate": {"max_pairs": 64, "look_every": 32}}


def core_of(tmp_path: Path, **sections: Any) -> Evolution:
    return begun(tmp_path / "run", **{**SMALL, **sections})


def champion_of(core: Evolution) -> Serving:
    assert core.state.champion is not None
    return core.state.champion


def challenge(core: Evolution, **fields: Any) -> Proposal:
    """A test of p1's newest version in the champion's harness."""
    incumbent = champion_of(core)
    challenger = Serving(publish(core, "p1"), incumbent.harness)
    return open_test(
        core,
        ProposalKind.PAIR,
        challenger=challenger,
        incumbent=incumbent,
        test_index=core.state.num_tests + 1,
        **fields,
    )


def edit(core: Evolution, *families: str) -> Proposal:
    """A test that serves these families in the trace format, at the base's weights."""
    parent = core.context.h0
    child = parent
    for family in families:
        child = set_format(child, family, "trace")
    version = champion_of(core).version
    proposal = Proposal(
        id=core.state.next_proposal,  # type: ignore[arg-type]
        kind=ProposalKind.HARNESS,
        operator="mutate_format",
        challenger=Serving(version, child.id),
        incumbent=Serving(version, parent.id),
        test_index=core.state.num_tests + 1,
        families=families,
        manifest={"slot": 0},
    )
    issue(core, ev.Open(proposal=proposal, harness=child))
    return proposal


def lease(core: Evolution, num_items: int = 1_000) -> list[WorkItem]:
    """Issue the next pairs."""
    items = gating.lease_pairs(
        core.state, core.context, ItemMaker(core.context.config, core.state.next_item), num_items
    )
    if items:
        issue(core, ev.Lease(items=tuple(items)))
    return items


def run_test(core: Evolution, correct: Callable[[WorkItem], bool | None]) -> ev.Decide:
    """Run pairs until the first verdict is due."""
    while True:
        verdict = gating.due_verdict(core.state, core.context)
        if verdict is not None:
            return verdict
        items = lease(core, 64)
        assert items, "a test that is not decided has pairs to run"
        core.tell(ended(items, correct))


# Pairs --------------------------------------------------------------------------------------------------------------


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


# Verdicts -----------------------------------------------------------------------------------------------------------


def test_a_challenger_that_is_better_is_accepted_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    proposal = challenge(core)
    accepted = run_test(core, lambda item: item.arm == "challenger")
    assert (accepted.verdict.proposal, accepted.verdict.kind) == (proposal.id, VerdictKind.ACCEPTED)
    # Decided at the first look.
    assert (accepted.verdict.wins, accepted.verdict.losses, accepted.verdict.ties) == (32, 0, 0)
    assert accepted.verdict.log_evalue >= -np.log(accepted.verdict.level)

    core = core_of(tmp_path)
    challenge(core)
    rejected = run_test(core, lambda item: item.arm == "incumbent")
    assert rejected.verdict.kind is VerdictKind.REJECTED
    core = core_of(tmp_path)
    challenge(core)
    undecided = run_test(core, lambda item: True)
    assert undecided.verdict.kind is VerdictKind.REJECTED
    assert undecided.verdict.reason == "undecided when the pairs ran out"
    assert undecided.verdict.ties == 64


def test_harm_in_one_family_vetoes_a_challenger_that_is_better_on_the_whole(tmp_path: Path) -> None:
    core = core_of(tmp_path, gate={"max_pairs": 512, "look_every": 256})
    challenge(core)
    verdict = run_test(core, lambda item: (item.arm == "challenger") == (item.task.family != "sort")).verdict
    assert verdict.wins > 3 * verdict.losses
    assert verdict.kind is VerdictKind.REJECTED
    assert verdict.reason == "vetoed by sort: evidence of harm"


def test_the_level_falls_with_a_tests_number_and_rises_with_what_was_accepted(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    test = core.state.tests[challenge(core).id]
    levels = []
    for number in (1, 2, 5, 40):
        test.proposal = replace(test.proposal, test_index=number)
        levels.append(gating.level_of(test, core.state, core.context))
    assert levels == sorted(levels, reverse=True)
    assert len(set(levels)) == 4
    # γ_k = 6 / (π² k²) of α = 0.1 (R + 1).
    assert levels[1] == pytest.approx(0.1 * 6 / np.pi**2 / 4)
    core.state.num_rejections = 3
    assert gating.level_of(test, core.state, core.context) == pytest.approx(4 * levels[3])


@pytest.mark.parametrize(
    ("kind", "level"), [(ProposalKind.NULL, 0.1), (ProposalKind.ROLLBACK, 0.1), (ProposalKind.MERGE, 1 / 3)]
)
def test_tests_outside_the_error_budget_have_a_level_of_their_own(
    tmp_path: Path, kind: ProposalKind, level: float
) -> None:
    core = core_of(tmp_path)
    champion = champion_of(core)
    proposal = open_test(core, kind, challenger=champion, incumbent=champion, manifest={"replaces": "p2"})
    core.state.num_rejections, core.state.num_tests = 5, 9
    assert gating.level_of(core.state.tests[proposal.id], core.state, core.context) == pytest.approx(level)


def test_an_accepted_edit_goes_into_its_slot_and_keeps_the_levels_that_moved_since(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    proposal = edit(core, "count")
    before = core.state.harnesses[core.state.slots[0].harness]
    moved = replace(before, tasks=tuple(replace(g, level_high=3) for g in before.tasks))
    issue(core, ev.Spawn(harness=moved, slot=0, operator="levels", parents=(before.id,)))
    decide(core, proposal, VerdictKind.ACCEPTED)
    now = core.state.harnesses[core.state.slots[0].harness]
    assert now == set_format(moved, "count", "trace")
    assert (core.state.num_tests, core.state.num_rejections) == (1, 1)
    # What serves is still the champion; an edit alone promotes nobody.
    assert champion_of(core).harness == before.id


def test_a_test_whose_ground_moved_is_withdrawn_and_gets_no_more_pairs(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    first, second = edit(core, "count"), edit(core, "sort")
    decide(core, second, VerdictKind.ACCEPTED)
    assert lease(core) == []
    verdict = gating.due_verdict(core.state, core.context)
    assert verdict is not None
    assert (verdict.verdict.proposal, verdict.verdict.kind) == (first.id, VerdictKind.WITHDRAWN)
    issue(core, verdict)
    assert core.state.num_rejections == 1


# A/A and rollback ---------------------------------------------------------------------------------------------------


def test_the_a_a_test_spends_nothing_whatever_it_says(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    champion = champion_of(core)
    core.state.charged = 1_400
    due = gating.due_null(core.state, core.context)
    assert due is not None
    assert (due.proposal.challenger, due.proposal.incumbent) == (champion, champion)
    assert due.proposal.test_index is None
    issue(core, due)
    assert gating.due_null(core.state, core.context) is None
    items = lease(core)
    assert {item.purpose for item in items} == {Purpose.NULL}
    assert {item.temperature for item in items} == {1.0}
    # Independent sampling: one seed for both arms would make every pair a tie.
    assert len({item.seed for item in items}) == len(items)
    for kind in (VerdictKind.ACCEPTED, VerdictKind.REJECTED):
        fresh = deepcopy(core.state)
        state, core.state = core.state, fresh
        decide(core, due.proposal, kind)
        assert (fresh.num_tests, fresh.num_rejections, fresh.champion) == (0, 0, champion)
        assert fresh.operator_counts == {}
        core.state = state


def test_a_a_tests_are_spread_over_the_budget(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    core.state.charged = 4_000 // 3 - 1
    assert gating.due_null(core.state, core.context) is None
    core.state.charged = 4_000 // 3 + 1
    due = gating.due_null(core.state, core.context)
    assert due is not None
    issue(core, due)
    decide(core, due.proposal, VerdictKind.REJECTED)
    assert gating.due_null(core.state, core.context) is None
    core.state.charged = 2 * 4_000 // 3 + 1
    assert gating.due_null(core.state, core.context) is not None


def promoted(core: Evolution) -> tuple[Serving, Serving]:
    """Promote p1; returns the old and the new champion."""
    old = champion_of(core)
    decide(core, challenge(core), VerdictKind.ACCEPTED)
    return old, champion_of(core)


def test_a_promotion_is_watched_and_a_rollback_restores_the_previous_champion(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    assert gating.due_rollback(core.state, core.context) is None
    old, new = promoted(core)
    assert new != old
    watch = gating.due_rollback(core.state, core.context)
    assert watch is not None
    assert (watch.proposal.challenger, watch.proposal.incumbent) == (old, new)
    assert watch.proposal.test_index is None
    issue(core, watch)
    assert gating.due_rollback(core.state, core.context) is None
    heads = [member.head.ref for member in core.state.members]
    decide(core, watch.proposal, VerdictKind.ACCEPTED)
    assert core.state.champion == old
    assert [how for _, _, how in core.state.champion_history] == ["start", "promoted", "rolled back"]
    # It restores what is served, never what is trained; and it is not watched in its turn.
    assert [member.head.ref for member in core.state.members] == heads
    assert gating.due_rollback(core.state, core.context) is None


def test_a_watch_that_finds_nothing_leaves_the_champion(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    _, new = promoted(core)
    watch = gating.due_rollback(core.state, core.context)
    assert watch is not None
    issue(core, watch)
    decide(core, watch.proposal, VerdictKind.REJECTED)
    assert core.state.champion == new
    assert gating.due_rollback(core.state, core.context) is None


def test_a_second_promotion_ends_the_first_watch_and_starts_its_own(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    promoted(core)
    watch = gating.due_rollback(core.state, core.context)
    assert watch is not None
    issue(core, watch)
    middle, last = promoted(core)
    verdict = gating.due_verdict(core.state, core.context)
    assert verdict is not None
    assert (verdict.verdict.proposal, verdict.verdict.kind) == (watch.proposal.id, VerdictKind.WITHDRAWN)
    issue(core, verdict)
    again = gating.due_rollback(core.state, core.context)
    assert again is not None
    assert (again.proposal.challenger, again.proposal.incumbent) == (middle, last)


# Opening ------------------------------------------------------------------------------------------------------------


def test_edits_are_tested_few_at_a_time_within_a_share_of_the_budget_and_not_at_the_end(tmp_path: Path) -> None:
    core = core_of(tmp_path, gate={"concurrent": 1, "max_share": 0.25})
    assert gating.may_propose(core.state, core.context)
    proposal = edit(core, "count")
    assert not gating.may_propose(core.state, core.context)
    decide(core, proposal, VerdictKind.REJECTED)
    core.state.charged, core.state.charged_tests = 1_000, 250
    assert gating.may_propose(core.state, core.context)
    core.state.charged_tests = 251
    assert not gating.may_propose(core.state, core.context)
    core.state.charged, core.state.charged_tests = 4_000 - core.context.tests_reserve, 0
    assert not gating.may_propose(core.state, core.context)


def known(core: Evolution, policy: str, share: float) -> VersionRef:
    """Give a member's head a solved share of twenty episodes in every cell of the initial harness."""
    member = core.state.member(PolicyId(policy))
    assert member is not None
    for cell in core.context.cells(core.context.h0):
        core.state.fitness.observe(
            member.policy, cell, member.head.ref.step, round(20 * share), round(20 * (1 - share))
        )
    return member.head.ref


def champion_stands(core: Evolution, share: float) -> None:
    """Assess the champion: 40 episodes in each cell of which this share is solved."""
    harness = core.state.harnesses[champion_of(core).harness]
    for cell in core.context.cells(harness):
        core.state.standing.observe(CHAMPION, cell, 0, round(40 * share), round(40 * (1 - share)))


@pytest.mark.parametrize(("share", "closing", "is_due"), [(0.7, False, True), (0.45, False, False), (0.45, True, True)])
def test_only_a_challenge_that_promises_something_is_opened(
    tmp_path: Path, share: float, closing: bool, is_due: bool
) -> None:
    core = core_of(tmp_path)
    publish(core, "p1")
    lead = known(core, "p1", share)
    champion_stands(core, 0.43)
    core.state.fill_done_at = 1
    if closing:
        core.state.charged = 4_000 - core.context.tests_reserve
    due = gating.due_challenge(core.state, core.context, Ranking(core.state, core.context))
    assert (due is not None) == is_due
    if due is not None:
        assert due.proposal.challenger == Serving(lead, core.context.h0.id)
        assert due.proposal.test_index == 1
        assert bool(due.proposal.manifest.get("final")) == closing


def test_a_challenge_waits_for_an_assessment_and_for_the_one_before_it(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    publish(core, "p1")
    known(core, "p1", 0.8)
    champion_stands(core, 0.4)
    assert gating.due_challenge(core.state, core.context, Ranking(core.state, core.context)) is None
    core.state.fill_done_at = 1
    due = gating.due_challenge(core.state, core.context, Ranking(core.state, core.context))
    assert due is not None
    issue(core, due)
    assert gating.due_challenge(core.state, core.context, Ranking(core.state, core.context)) is None
    decide(core, due.proposal, VerdictKind.REJECTED)
    assert gating.due_challenge(core.state, core.context, Ranking(core.state, core.context)) is None


def test_the_champion_does_not_challenge_itself(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    # All members are still the base: the same computation under another name.
    known(core, "p1", 0.9)
    champion_stands(core, 0.4)
    core.state.fill_done_at = 1
    assert gating.due_challenge(core.state, core.context, Ranking(core.state, core.context)) is None


# A whole run --------------------------------------------------------------------------------------------------------


def test_a_run_holds_every_pair_to_its_rules_and_every_verdict_to_its_level(tmp_path: Path) -> None:
    run, evolution = simulated_run(tmp_path / "run", SimulatedFleet(lag=4), budget={"rollouts": 3_000})
    proposals: dict[int, Proposal] = {}
    accepted = 0
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            match event:
                case ev.Issued(directive=ev.Open(proposal=proposal)):
                    proposals[proposal.id] = proposal
                case ev.Issued(directive=ev.Decide(verdict=verdict)):
                    proposal = proposals[verdict.proposal]
                    is_accepted = verdict.kind is VerdictKind.ACCEPTED
                    if is_accepted:
                        assert verdict.log_evalue >= -np.log(verdict.level) - 1e-9
                    if proposal.test_index is not None and verdict.kind is not VerdictKind.WITHDRAWN:
                        expected = 0.1 * 6 / (np.pi * proposal.test_index) ** 2 * (accepted + 1)
                        assert verdict.level == pytest.approx(min(expected, 1.0))
                        accepted += is_accepted
                case ev.Issued(directive=ev.Lease(items=items)):
                    for item in items:
                        if item.proposal is not None and proposals[item.proposal].kind is ProposalKind.HARNESS:
                            assert item.task.family in proposals[item.proposal].families
    assert accepted == evolution.state.num_rejections
    assert len(proposals) >= 3


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
