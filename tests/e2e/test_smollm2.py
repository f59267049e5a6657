"""The path with real weights: SmolLM2-135M, LoRA members, reasoning-gym tasks, chat prompts, in the in-process fleet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coharness.policy.bases import resolve_base
from coharness.records.errors import PreflightError

ROOT = Path(__file__).resolve().parents[2]
TINY_RUN = (
    "fleet.type=local",
    "budget.rollouts=64",
    "population.num_policies=2",
    "training.groups_per_update=4",
    "training.max_staleness=1",
    "fleet.batch_items=8",
    "evaluation.probe_tasks=0",
    "evaluation.track_tasks=4",
    "evaluation.sealed_per_cell=2",
    "evaluation.best_of_k=0",
    "evaluation.tokens_per_task=16",
    "gate.null_tests=0",
    "gate.look_every=4",
    "gate.max_pairs=32",
    "evolution.assess_every=100",
    "harness.num_shots=1",
)

pytestmark = [pytest.mark.slow, pytest.mark.real_weights]


@pytest.fixture(scope="module")
def base():
    try:
        return resolve_base("smollm2")
    except PreflightError as error:
        pytest.skip(f"the weights are not here: {error}")


def test_a_small_run_trains_lora_members_of_a_real_model_and_reports(tmp_path, base):
    run_dir = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "coharness", "run", "experiments/smollm2/config.yaml", f"run_dir={run_dir}", *TINY_RUN,
         "--progress", "none"],
        cwd=ROOT, capture_output=True, text=True, timeout=560, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    sealed = json.loads((run_dir / "sealed.json").read_text())
    assert sealed["num_tasks"] == 4
    assert (run_dir / "report.html").is_file()
    adapters = list(run_dir.glob("weights/*/*/adapter_model.safetensors"))
    assert adapters, "no member was trained"
    assert adapters[0].stat().st_size < 10_000_000, "an adapter is published, not the base"
