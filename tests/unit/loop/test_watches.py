"""Tests beside the error budget: the champion against itself, and against the one before it."""

from copy import deepcopy
from pathlib import Path

from coharness.loop import gating
from coharness.loop.core import Evolution
from coharness.records.proposals import VerdictKind
from coharness.records.work import Purpose, Serving
from tests.unit.loop.gate_cases import challenge, champion_of, core_of, lease
from tests.unit.loop.handmade import decide, issue


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
