"""The core's promises, under outcomes in any order and with failures: accounting, staleness, admission, one end an item."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coharness.loop.core import Evolution
from coharness.loop.journal import read_frames
from coharness.loop.state import state_digest
from coharness.records import events as ev
from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.records.task import Pool, pool_of
from coharness.records.work import OutcomeStatus, Purpose
from coharness.testing.runs import simulated_config, simulated_run
from coharness.testing.simulated import SimulatedFleet

SCHEDULES = ["async", "stagewise", "harness_only", "weights_only", "randomized"]


def refold(path: Path, check: bool) -> Evolution:
    """Fold a finished run again, checking the identities after every event."""
    from coharness.loop.build import run_sources
    from coharness.loop.run_dir import RunDir

    run = RunDir.open(path)
    config = run.load_config()
    evolution = Evolution(config, run_sources(config))
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            evolution.tell(event)
            if check:
                evolution.state.check_identities()
    return evolution


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    schedule=st.sampled_from(SCHEDULES),
    seed=st.integers(0, 2**16),
    lag=st.integers(0, 5),
    failure_rate=st.sampled_from([0.0, 0.03]),
    staleness=st.integers(1, 3),
)
def test_identities_hold_after_every_event_and_staleness_is_bounded(schedule, seed, lag, failure_rate, staleness):
    with TemporaryDirectory() as folder:
        fleet = SimulatedFleet(seed=seed, lag=lag, failure_rate=failure_rate)
        run, evolution = simulated_run(
            Path(folder) / "run",
            fleet,
            schedule=schedule,
            seed=seed,
            budget={"rollouts": 2_000},
            training={"max_staleness": staleness},
        )
        state = refold(run.path, check=True).state
        assert state_digest(state) == state_digest(evolution.state)
        assert state.staleness_max <= staleness
        assert not state.running
        assert state.charged <= 2_000
        assert fleet.closed


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return simulated_run(tmp_path_factory.mktemp("runs") / "run", SimulatedFleet(lag=3, failure_rate=0.02))


def events_of(run):
    return [event for frame in read_frames(run.journal_dir) for event in frame.events]


def test_every_item_that_was_leased_ends_exactly_once(finished):
    run, _ = finished
    leased, ended = Counter(), Counter()
    for event in events_of(run):
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
            leased.update(item.id for item in event.directive.items)
        elif isinstance(event, ev.BatchDone):
            ended.update(outcome.item for outcome in event.result.outcomes)
    assert leased == ended
    assert set(leased.values()) == {1}


def test_only_training_groups_reach_a_trainer_and_each_own_group_at_most_once(finished):
    run, _ = finished
    purposes, own, done = {}, Counter(), {}
    for event in events_of(run):
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
            purposes.update({item.id: item.purpose for item in event.directive.items})
        elif isinstance(event, ev.Issued) and isinstance(event.directive, ev.Train):
            job = event.directive.job
            assert {purposes[i] for i in (*job.items, *job.borrowed)} == {Purpose.TRAIN}
            done[job.id] = job
        elif isinstance(event, ev.JobDone) and event.result.version is not None and event.result.job in done:
            own.update(done[event.result.job].items)
    assert own
    assert set(own.values()) == {1}


def test_tasks_come_from_the_pool_of_their_purpose(finished):
    run, _ = finished
    pools = {
        Purpose.TRAIN: Pool.SEARCH, Purpose.FILL: Pool.SEARCH, Purpose.GATE: Pool.GATE, Purpose.RACE: Pool.GATE,
        Purpose.NULL: Pool.GATE, Purpose.ANCHOR: Pool.ANCHOR, Purpose.TRACK: Pool.TRACK,
    }  # fmt: skip
    seen = set()
    for event in events_of(run):
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
            for item in event.directive.items:
                assert pool_of(item.task.id) is pools[item.purpose]
                seen.add(item.purpose)
    assert {Purpose.TRAIN, Purpose.FILL, Purpose.GATE, Purpose.NULL, Purpose.TRACK} <= seen


def test_a_gate_task_is_used_at_most_once_a_test_and_both_arms_share_task_and_seed(finished):
    run, _ = finished
    pairs = {}
    for event in events_of(run):
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
            for item in event.directive.items:
                if item.proposal is not None and item.pair >= 0:
                    pairs.setdefault((item.proposal, item.pair), []).append(item)
    by_test = {}
    for (proposal, _), arms in pairs.items():
        challenger, incumbent = sorted(arms, key=lambda i: i.arm)
        assert challenger.task == incumbent.task
        if challenger.purpose is not Purpose.NULL:
            assert challenger.seed == incumbent.seed
            assert challenger.temperature == incumbent.temperature == 0
        by_test.setdefault(proposal, []).append(challenger.task.id)
    assert by_test
    for tasks in by_test.values():
        assert len(tasks) == len(set(tasks))


def test_the_budget_counts_every_purpose_but_track(finished):
    run, evolution = finished
    charged, items = 0, {}
    for event in events_of(run):
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
            items.update({item.id: item for item in event.directive.items})
        elif isinstance(event, ev.BatchDone):
            for outcome in event.result.outcomes:
                item = items[outcome.item]
                if outcome.status is OutcomeStatus.DONE and item.purpose is not Purpose.TRACK:
                    charged += item.group_size
    assert charged == evolution.state.charged <= 4_000


def test_tests_that_spend_from_the_error_budget_are_numbered_in_order(finished):
    run, _ = finished
    indices = [
        event.directive.proposal.test_index
        for event in events_of(run)
        if isinstance(event, ev.Issued)
        and isinstance(event.directive, ev.Open)
        and event.directive.proposal.test_index is not None
    ]
    assert indices == list(range(1, len(indices) + 1))


def test_null_and_rollback_tests_spend_nothing(finished):
    run, _ = finished
    for event in events_of(run):
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Open):
            proposal = event.directive.proposal
            free = proposal.kind in (ProposalKind.NULL, ProposalKind.ROLLBACK, ProposalKind.MERGE)
            assert (proposal.test_index is None) == free


def test_every_proposal_has_one_verdict(finished):
    _, evolution = finished
    verdicts = [v.proposal for v in evolution.state.verdicts]
    assert sorted(verdicts) == list(range(evolution.state.next_proposal))
    assert {v.kind for v in evolution.state.verdicts} >= {VerdictKind.ACCEPTED, VerdictKind.REJECTED}


def test_no_version_in_use_is_ever_retired(tmp_path):
    # The simulated fleet refuses an item whose weights were retired.
    _, evolution = simulated_run(tmp_path / "run", SimulatedFleet(lag=5), budget={"rollouts": 6_000})
    assert len(evolution.state.versions) < evolution.state.ticks


def test_the_same_seed_gives_the_same_run(tmp_path):
    digests = []
    for name in ("a", "b"):
        _, evolution = simulated_run(tmp_path / name, SimulatedFleet(seed=1), budget={"rollouts": 1_500})
        digests.append(state_digest(evolution.state))
    assert digests[0] == digests[1]


def test_frozen_ends_at_once(tmp_path):
    _, evolution = simulated_run(tmp_path / "run", schedule="frozen")
    assert evolution.state.charged == 0
    assert evolution.state.champion is not None


def test_the_config_builder_is_valid(tmp_path):
    assert simulated_config(tmp_path / "x").budget.rollouts == 4_000
