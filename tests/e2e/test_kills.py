"""Kill -9, with real weights on a real Ray: the run finishes, or is resumed, and no item is lost or counted twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from coharness.loop.journal import follow, read_frames
from coharness.loop.run_dir import RunDir
from coharness.records import events as ev
from coharness.records.work import OutcomeStatus

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0
SMALL = (
    "budget.rollouts=2400",
    "tasks.0.max_level=3",
    "population.num_policies=2",
    "training.groups_per_update=32",
    "fleet.batch_items=32",
    "evaluation.track_tasks=9",
    "evaluation.sealed_per_cell=2",
    "evaluation.best_of_k=2",
    "gate.max_pairs=128",
    "gate.null_tests=1",
    "gate.null_pairs=32",
    "evolution.assess_every=12",
)

pytestmark = pytest.mark.slow


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "coharness", *arguments, "--progress", "none"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(condition, process, what):
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        assert process.poll() is None, f"the run ended while waiting for {what}: {process.communicate()}"
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")


def below(process, title):
    """Pids of the run's Ray workers of one role."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.cmdline()[:1] and child.cmdline()[0].startswith(f"ray::{title}"):
                found.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def events(run_dir):
    return [event for frame in follow(run_dir / "journal", 1) for event in frame.events]


def num_updates(run_dir):
    return sum(isinstance(e, ev.JobDone) and e.result.version is not None for e in events(run_dir))


def assert_whole(run_dir):
    leased, ended, done = Counter(), Counter(), Counter()
    for frame in read_frames(run_dir / "journal"):
        for event in frame.events:
            if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
                leased.update(item.id for item in event.directive.items)
            elif isinstance(event, ev.BatchDone):
                ended.update(o.item for o in event.result.outcomes)
                done.update(o.item for o in event.result.outcomes if o.status is OutcomeStatus.DONE)
    assert leased == ended
    assert set(leased.values()) == {1}
    assert len(done) > 1_000
    replay = subprocess.run(
        [sys.executable, "-m", "coharness", "replay", str(run_dir), "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    report = json.loads(replay.stdout)
    assert report["state_digest"] == report["recorded_digest"]


def test_a_run_outlives_the_death_of_a_rollout_worker_and_of_the_trainer(tmp_path):
    run_dir = tmp_path / "run"
    process = start("run", "experiments/quickstart/config.yaml", f"run_dir={run_dir}", *SMALL)
    wait_for(lambda: num_updates(run_dir) >= 2, process, "two updates")
    os.kill(wait_for(lambda: below(process, "RolloutActor"), process, "a rollout worker")[0], signal.SIGKILL)
    wait_for(lambda: any(isinstance(e, ev.WorkerLost) for e in events(run_dir)), process, "the loss of the worker")
    before = num_updates(run_dir)
    os.kill(wait_for(lambda: below(process, "TrainerActor"), process, "the trainer")[0], signal.SIGKILL)
    wait_for(lambda: num_updates(run_dir) > before, process, "an update by the trainer that took over")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    lost = [e.worker for e in events(run_dir) if isinstance(e, ev.WorkerLost)]
    assert any("rollout" in name for name in lost)
    assert any("trainer" in name for name in lost)
    assert_whole(run_dir)
    assert (run_dir / "report.html").stat().st_size > 10_000


def test_a_run_whose_coordinator_was_killed_is_resumed_to_its_end(tmp_path):
    run_dir = tmp_path / "run"
    process = start("run", "experiments/quickstart/config.yaml", f"run_dir={run_dir}", *SMALL)
    wait_for(lambda: num_updates(run_dir) >= 3, process, "three updates")
    os.kill(json.loads(RunDir(run_dir).lease_path.read_text())["pid"], signal.SIGKILL)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode not in (0, None)
    assert "coharness resume" in err
    again = start("resume", str(run_dir))
    _, err = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 0, err
    epochs = [e.epoch for e in events(run_dir) if isinstance(e, ev.Resumed)]
    assert epochs == [2]
    assert_whole(run_dir)
