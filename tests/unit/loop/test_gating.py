"""Verdicts of the gate, what they change, and what is opened when."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coharness.harness.operators import set_format
from coharness.loop import gating
from coharness.loop.core import Evolution
from coharness.loop.journal import read_frames
from coharness.loop.ranking import Ranking
from coharness.loop.state import CHAMPION
from coharness.records import events as ev
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef
from coharness.records.proposals import Proposal, ProposalKind, VerdictKind
from coharness.records.work import Serving
from coharness.testing.runs import simulated_run
from coharness.testing.simulated import SimulatedFleet
from tests.unit.loop.gate_cases import challenge, champion_of, core_of, edit, lease, run_test
from tests.unit.loop.handmade import decide, issue, open_test, publish

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
