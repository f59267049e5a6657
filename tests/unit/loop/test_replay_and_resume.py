"""Replay recomputes every decision; resume goes on after a death at any frame without losing or repeating work."""

import copy
import shutil
from collections import Counter

import pytest

from coharness.loop import harnesses
from coharness.loop.journal import read_frames, segments
from coharness.loop.replay import replay_run
from coharness.loop.run_dir import RunDir
from coharness.records import events as ev
from coharness.records.errors import ReplayMismatch
from coharness.records.work import OutcomeStatus
from coharness.testing.runs import simulated_config, simulated_engine, simulated_run
from coharness.testing.simulated import SimulatedFleet


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulated_run(tmp_path_factory.mktemp("runs") / "run", SimulatedFleet(lag=2), budget={"rollouts": 3_000})[0]


def test_replay_agrees_with_the_run(run):
    report = replay_run(run.path)
    assert report.state_digest == report.recorded_digest
    assert report.num_decisions > 20


def test_replay_fails_at_the_first_decision_that_a_changed_constant_touches(run, monkeypatch):
    monkeypatch.setattr(harnesses, "LEVELS_EVERY", harnesses.LEVELS_EVERY + 1)
    with pytest.raises(ReplayMismatch, match=r"frame \d+, event \d+") as caught:
        replay_run(run.path)
    assert "Spawn" in str(caught.value) or "nothing" in str(caught.value) or "Lease" in str(caught.value)


def truncate_frames(run, keep):
    """The run as it would be if the process had died after frame `keep`."""
    path = segments(run.journal_dir)[-1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: keep + 1]))
    run.snapshot_path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that ended, and the fleet that carried it out."""
    fleet = SimulatedFleet(lag=3)
    return simulated_run(tmp_path_factory.mktemp("runs") / "whole", fleet, budget={"rollouts": 2_000})[0], fleet


@pytest.mark.parametrize("share", [0.05, 0.4, 0.8])
def test_a_run_that_died_at_any_frame_goes_on(tmp_path, whole, share):
    # What a fleet has published and stored is taken over by the next one, so each death has its own of both.
    (source, fleet), path = whole, tmp_path / "run"
    run, first = RunDir.open(shutil.copytree(source.path, path)), copy.deepcopy(fleet)
    num_frames = sum(1 for _ in read_frames(run.journal_dir))
    truncate_frames(run, max(int(num_frames * share), 2))
    second = SimulatedFleet(lag=3, before=first)
    engine, evolution = simulated_engine(run, second, resume=True)
    engine.run()
    assert evolution.state.finished
    evolution.state.check_identities()
    leased, done, trained = Counter(), Counter(), Counter()
    jobs = {}
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
                leased.update(i.id for i in event.directive.items)
            elif isinstance(event, ev.Issued) and isinstance(event.directive, ev.Train):
                jobs[event.directive.job.id] = event.directive.job
            elif isinstance(event, ev.BatchDone):
                done.update(o.item for o in event.result.outcomes if o.status is OutcomeStatus.DONE)
            elif isinstance(event, ev.JobDone) and event.result.version and event.result.job in jobs:
                trained.update(jobs[event.result.job].items)
    assert leased == done
    assert set(leased.values()) == {1}
    assert set(trained.values()) <= {1}
    report = replay_run(run.path)
    assert report.state_digest == report.recorded_digest


def test_a_soft_stop_drains_and_leaves_a_resumable_run(tmp_path):
    run = RunDir.create(simulated_config(tmp_path / "run", budget={"rollouts": 2_000}))
    fleet = SimulatedFleet()
    engine, evolution = simulated_engine(run, fleet)
    engine.request_stop("a person asked", hard=False)
    assert engine.run() == "interrupted"
    assert not evolution.state.running
    assert not evolution.state.finished
    again, resumed = simulated_engine(run, SimulatedFleet(before=fleet), resume=True)
    assert again.run() == "done"
    assert resumed.state.epoch == 2


def test_a_hard_stop_leaves_items_that_resume_runs_again(tmp_path):
    run = RunDir.create(simulated_config(tmp_path / "run", budget={"rollouts": 1_000}))
    fleet = SimulatedFleet()
    engine, evolution = simulated_engine(run, fleet)
    engine.request_stop("twice", hard=True)
    assert engine.run() == "interrupted"
    unfinished = set(evolution.state.running)
    assert unfinished
    second = SimulatedFleet(before=fleet)
    again, _ = simulated_engine(run, second, resume=True)
    assert again.run() == "done"
    assert unfinished <= set(second.num_runs)
