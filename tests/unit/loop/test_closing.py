"""The end of a run: only when nothing is in flight, and no weights are dropped that somebody may ask for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coharness.loop.closing import SPARE_VERSIONS, due_finish, due_retirement, live_versions
from coharness.loop.core import Evolution
from coharness.loop.journal import read_frames
from coharness.loop.state import Milestone, State
from coharness.records import events as ev
from coharness.records.ids import ItemId, JobId, PolicyId
from coharness.records.policy import VersionRef
from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob
from coharness.records.work import Serving
from coharness.testing.runs import simulated_run
from coharness.testing.simulated import SimulatedFleet
from tests.unit.loop.handmade import begun, decide, ended, issue, open_test, publish


def spent(tmp_path: Path) -> Evolution:
    """A core that has spent its budget and has nothing to do."""
    core = begun(tmp_path / "run")
    core.state.charged = core.context.config.budget.rollouts
    return core


def test_a_run_with_budget_left_goes_on(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    assert due_finish(core.state, core.context) is None


def test_a_run_ends_when_its_rollouts_are_spent_or_its_time_is_up(tmp_path: Path) -> None:
    core = spent(tmp_path)
    assert due_finish(core.state, core.context) == ev.Finish(reason="the budget of rollouts is spent")
    core = begun(tmp_path / "run")
    core.tell(ev.Tick(elapsed_s=core.context.config.budget.minutes * 60, cpu_s=0.0))
    assert due_finish(core.state, core.context) == ev.Finish(reason="the time is up")


def item_runs(core: Evolution) -> Callable[[], None]:
    while not core.state.running:
        for directive in core.ask(ev.Capacity(num_items=8, num_jobs=0)):
            issue(core, directive)
    items = list(core.state.running.values())
    return lambda: core.tell(ended(items, lambda item: None))


def job_runs(core: Evolution) -> Callable[[], None]:
    head = core.state.members[0].head
    issue(
        core,
        ev.Train(job=TrainJob(id=JobId(0), start=head, step=1, hyperparameters={}, items=(), borrowed=(), seed=0)),
    )
    return lambda: core.tell(ev.JobDone(result=JobResult(job=JobId(0), status=JobStatus.FAILED)))


def gate_runs(core: Evolution) -> Callable[[], None]:
    assert core.state.champion is not None
    champion = core.state.champion
    proposal = open_test(core, ProposalKind.NULL, challenger=champion, incumbent=champion)
    return lambda: decide(core, proposal, VerdictKind.WITHDRAWN)


def group_waits(core: Evolution) -> Callable[[], None]:
    core.state.members[1].waiting.append((ItemId(0), 0))
    return core.state.members[1].waiting.clear


@pytest.mark.parametrize("begin", [item_runs, job_runs, gate_runs, group_waits])
def test_it_does_not_end_while_anything_is_in_flight(
    tmp_path: Path, begin: Callable[[Evolution], Callable[[], None]]
) -> None:
    core = begun(tmp_path / "run")
    end = begin(core)
    core.state.charged = core.context.config.budget.rollouts
    assert due_finish(core.state, core.context) is None
    end()
    assert due_finish(core.state, core.context) is not None


@pytest.mark.parametrize("schedule", ["async", "stagewise", "harness_only", "weights_only", "randomized"])
def test_every_schedule_ends_with_nothing_in_flight(tmp_path: Path, schedule: str) -> None:
    run, evolution = simulated_run(
        tmp_path / "run", SimulatedFleet(lag=3), schedule=schedule, budget={"rollouts": 600}, gate={"max_pairs": 64}
    )
    events = [event for frame in read_frames(run.journal_dir) for event in frame.events]
    at = [i for i, e in enumerate(events) if isinstance(e, ev.Issued) and isinstance(e.directive, ev.Finish)]
    assert len(at) == 1
    # Nothing is decided or reported after the end; a last tick may be.
    assert all(isinstance(event, ev.Tick) for event in events[at[0] + 1 :])
    state = evolution.state
    assert not state.running
    assert not state.jobs
    assert not state.tests
    assert state.finished


# Weights ------------------------------------------------------------------------------------------------------------


def many_versions(core: Evolution, policy: str, count: int) -> list[VersionRef]:
    return [publish(core, policy) for _ in range(count)]


def test_dead_versions_gather_and_are_retired_together(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    refs = many_versions(core, "p1", SPARE_VERSIONS)
    assert due_retirement(core.state) is None
    refs += many_versions(core, "p1", 1)
    retire = due_retirement(core.state)
    assert retire is not None
    assert set(retire.uris) == {core.state.versions[ref].weights.uri for ref in refs[:-1]}
    issue(core, retire)
    assert set(core.state.versions) == {VersionRef(PolicyId(p), 0) for p in ("p0", "p1", "p2")} | {refs[-1]}
    assert due_retirement(core.state) is None


def holders(state: State, ref: VersionRef) -> dict[str, Callable[[], None]]:
    """Ways to need a version, by who needs it."""
    assert state.champion is not None
    serving = Serving(ref, state.champion.harness)
    merge = MergeJob(id=JobId(99), child=PolicyId("p9"), rule="linear", parents=(state.versions[ref],), weights=(1.0,))
    return {
        "champion": lambda: setattr(state, "champion", serving),
        "previous": lambda: setattr(state, "previous_champion", serving),
        "milestone": lambda: state.milestones.append(Milestone(rollouts=1, tokens=1, cpu_s=0.0, serving=serving)),
        "merge job": lambda: state.jobs.update({JobId(99): merge}),
        "waiting merge": lambda: state.merges_ready.append((ref, ())),
        "parent of a waiting merge": lambda: state.merges_ready.append((VersionRef(PolicyId("p9"), 0), (ref,))),
    }


@pytest.mark.parametrize(
    "who", ["champion", "previous", "milestone", "merge job", "waiting merge", "parent of a waiting merge"]
)
def test_what_somebody_may_still_ask_for_is_kept(tmp_path: Path, who: str) -> None:
    core = begun(tmp_path / "run")
    refs = many_versions(core, "p1", SPARE_VERSIONS + 2)
    assert refs[3] not in live_versions(core.state)
    holders(core.state, refs[3])[who]()
    assert refs[3] in live_versions(core.state)
    retire = due_retirement(core.state)
    assert retire is not None
    assert core.state.versions[refs[3]].weights.uri not in retire.uris


def test_weights_that_a_clone_shares_with_its_donor_live_as_long_as_the_clone(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    donor = publish(core, "p1")
    issue(
        core,
        ev.Clone(child=PolicyId("p3"), donor=donor, replaced=PolicyId("p2"), hyperparameters={}, probability=0.95),
    )
    many_versions(core, "p1", SPARE_VERSIONS + 2)
    retire = due_retirement(core.state)
    assert retire is not None
    assert core.state.versions[VersionRef(PolicyId("p3"), 0)].weights.uri == core.state.versions[donor].weights.uri
    assert core.state.versions[donor].weights.uri not in retire.uris
