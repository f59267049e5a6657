"""Functions to write, a sandbox, a rule over both and GRPO: a whole run on the tiny base, and one with real weights."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coharness.loop.journal import read_frames
from coharness.loop.replay import replay_run
from coharness.loop.replay_store import read_episodes
from coharness.policy.bases import resolve_base
from coharness.records import events as ev
from coharness.records.errors import PreflightError
from coharness.reward.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "fleet.type=local",
    "population.num_policies=1",
    "population.num_harnesses=1",
    "evaluation.best_of_k=0",
    "gate.max_pairs=32",
    "evolution.merge_every=0",
    "evolution.assess_every=1000",
    "evolution.propose_every=1000",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def some_layer() -> None:
    sandbox = Sandbox()
    try:
        assert sandbox.layers
    except PreflightError as error:
        pytest.skip(str(error))
    finally:
        sandbox.close()


def run(config: str, run_dir: Path, *overrides: str, timeout_s: float) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "coharness", "run", f"experiments/code/{config}", f"run_dir={run_dir}", *SMALL, *overrides,
         "--progress", "none"],
        cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_the_tiny_base_learns_from_what_the_sandbox_saw_and_the_run_replays(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run(
        "config-tiny.yaml", run_dir, "budget.rollouts=256", "training.groups_per_update=8", "fleet.batch_items=16",
        "training.schedule=[{objective: sft, updates: 2, rate_scale: 30.0}]", "evaluation.track_tasks=2",
        "evaluation.sealed_per_cell=4", timeout_s=570.0,
    )  # fmt: skip
    assert json.loads((run_dir / "sealed.json").read_text())["num_tasks"] == 4
    events = [event for frame in read_frames(run_dir / "journal") for event in frame.events]
    learned = {event.result.job for event in events if isinstance(event, ev.JobDone) and event.result.num_rows}
    phases = {
        event.directive.job.hyperparameters.get("phase")
        for event in events
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Train) and event.directive.job.id in learned
    }
    assert 1.0 in phases, f"no update by GRPO had anything to learn from, phases {phases}"
    episodes = read_episodes(run_dir / "replay").to_pylist()
    practised = [row["score"] for row in episodes if row["purpose"] == "train"]
    assert any(0.0 < value < 0.5 for value in practised), "nothing but the verdict was rewarded"
    report = replay_run(run_dir)
    assert report.state_digest == report.recorded_digest


@pytest.mark.real_weights
def test_real_weights_write_functions_and_are_trained_on_the_rule(tmp_path: Path) -> None:
    try:
        resolve_base("smollm2")
    except PreflightError as error:
        pytest.skip(f"the weights are not here: {error}")
    run_dir = tmp_path / "run"
    run(
        "config.yaml", run_dir, "budget.rollouts=16", "training.group_size=2", "training.groups_per_update=2",
        "fleet.batch_items=2",
        "harness.num_shots=1", "harness.max_shots=1", "harness.formats=[body]", "harness.format=body",
        "evaluation.tokens_per_task=24", "evaluation.probe_tasks=0", "evaluation.track_tasks=0",
        "evaluation.sealed_per_cell=1", timeout_s=570.0,
    )  # fmt: skip
    assert json.loads((run_dir / "sealed.json").read_text())["num_tasks"] == 2
    adapters = list(run_dir.glob("weights/*/*/adapter_model.safetensors"))
    assert adapters, "no member was trained"
