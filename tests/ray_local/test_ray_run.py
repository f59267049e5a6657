"""A run on Ray from the outside: it ends, it is stopped, its coordinator is killed, it is resumed. Core and engine are real."""

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.api import StopRequest, drive
from actors.options import ActorSpec, Deadlines, Factories, coordinator_name
from actors.session import Session
from actors.slots import WorkerDied
from actors.workers import Starter, end_left
from coharness.config.schema import Budget, BuiltinTasks, FleetSection, RunConfig
from coharness.loop.build import fold_run
from coharness.loop.engine import StopKind
from coharness.loop.journal import read_frames
from coharness.loop.replay_store import read_episodes
from coharness.loop.run_dir import RunDir
from coharness.records.errors import CoharnessError, PreflightError
from coharness.records.events import BatchDone
from coharness.records.work import OutcomeStatus
from coharness.testing.fleets import make_batch

DOUBLES = Factories(
    rollout="coharness.testing.fleet_doubles:build_worker",
    jobs="coharness.testing.fleet_doubles:build_jobs",
    replay="coharness.testing.fleet_doubles:open_store",
    weights="coharness.testing.fleet_doubles:open_weights",
    engine="coharness.testing.fleet_doubles:build_engine",
)
Status = dict[str, Any]


def make_run(folder: Path, rollouts: int) -> RunDir:
    config = RunConfig(
        run_dir=str(folder / "run"),
        budget=Budget(rollouts=rollouts),
        tasks=(BuiltinTasks(families=("reverse",), max_level=2),),
        fleet=FleetSection(rollout_workers=1, trainers=1),
    )
    return RunDir.create(config)


def go(
    run: RunDir,
    *,
    resume: bool,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Callable[[], StopRequest | None] = lambda: None,
) -> StopKind:
    return drive(run, resume, on_status, stop, DOUBLES, Deadlines())


def test_a_run_whose_coordinator_is_killed_and_that_is_stopped_goes_on_to_its_end(
    ray_session: Session, tmp_path: Path
) -> None:
    run = make_run(tmp_path, rollouts=10_000)
    seen: list[Status] = []

    def kill_once_it_works(status: Status) -> None:
        seen.append(status)
        if status.get("rollouts", 0) > 0:
            os.kill(pid_of_writer(run), signal.SIGKILL)

    with pytest.raises(CoharnessError, match=r"the coordinator of .*run died; nothing is lost.*coharness resume"):
        go(run, resume=False, on_status=kill_once_it_works)
    assert {"starting", "running"} <= {status["phase"] for status in seen}

    def stop_once_it_works() -> StopRequest | None:
        return StopRequest(reason="the test says so") if seen[-1].get("rollouts", 0) > after_kill else None

    after_kill = fold_run(run).state.charged
    assert go(run, resume=True, on_status=seen.append, stop=stop_once_it_works) is StopKind.INTERRUPTED
    stopped = fold_run(run).state
    assert stopped.charged < 10_000
    assert not stopped.running, "a soft stop waits for what runs"

    assert go(run, resume=True, on_status=seen.append) is StopKind.DONE
    state = fold_run(run).state
    state.check_identities()
    assert state.epoch == 3
    done = [
        outcome.item
        for frame in read_frames(run.journal_dir)
        for event in frame.events
        if isinstance(event, BatchDone)
        for outcome in event.result.outcomes
        if outcome.status is OutcomeStatus.DONE
    ]
    assert len(done) == len(set(done)) > 1_000
    assert set(done) <= set(read_episodes(run.replay_dir)["item"].to_pylist()), "every done item has its episodes"
    assert not end_left(run.logs_dir / "actors.json", coordinator_name(run.path), 20.0), "nothing outlives its run"


def pid_of_writer(run: RunDir) -> int:
    pid = json.loads(run.lease_path.read_text())["pid"]
    assert pid != os.getpid()
    return int(pid)


def test_a_run_that_another_process_writes_is_refused_with_the_process(ray_session: Session, tmp_path: Path) -> None:
    run = make_run(tmp_path, rollouts=100)
    run.acquire_lease()
    with pytest.raises(PreflightError, match=f"is being written by process {os.getpid()}"):
        go(run, resume=False)


@pytest.mark.timeout(120)
def test_a_worker_that_hears_no_coordinator_ends_itself(ray_session: Session, tmp_path: Path) -> None:
    run = make_run(tmp_path, rollouts=100)
    spec = ActorSpec(
        name="",
        run_dir=str(run.path),
        config=run.load_config().model_dump(mode="json"),
        epoch=1,
        factories=DOUBLES,
        deadlines=Deadlines(hearing_s=1.0),
        coordinator=coordinator_name(run.path),
    )
    worker = Starter(spec=spec, num_cpus=1, record=run.logs_dir / "actors.json").rollout("rollout-0", replay=None)
    ref = worker.run(make_batch(itertools.count(1), ["do:hang"]))
    with pytest.raises(WorkerDied):
        worker.result(ref)
    assert "leaves coharness/" in (run.logs_dir / "rollout-0.log").read_text()
