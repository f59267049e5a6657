"""Whole runs rolled out by vLLM, from command line to report, one of them trained by DeepSpeed; no engine is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coharness.loop.journal import read_frames
from coharness.loop.run_dir import RunDir
from coharness.records import events as ev
from coharness.records.training import JobStatus

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "generation=vllm",
    "generation.batch_size=32",
    "generation.vllm.kv_cache_mib=128",
    "generation.vllm.start_s=900",
    "policy.weights=lora",
    "schedule=weights_only",
    "budget.rollouts=1024",
    "budget.minutes=30",
    "population.num_policies=2",
    "training.groups_per_update=4",
    "training.max_staleness=1",
    "evolution.assess_every=100",
    "fleet.batch_items=8",
    "evaluation.track_tasks=8",
    "evaluation.sealed_per_cell=2",
    "evaluation.best_of_k=2",
    "gate.null_tests=0",
    "gate.look_every=4",
    "gate.max_pairs=32",
    "fleet.rollout_workers=1",
)

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(2400)]


def engines_of(run_dir: Path) -> list[int]:
    """Ids of processes that write to an engine's log of this run."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(file.path).match(f"{run_dir}/logs/vllm-*.log") for file in process.open_files()):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def run(run_dir: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coharness", "run", "experiments/quickstart/config.yaml", f"run_dir={run_dir}",
         "fleet=local", *SMALL, *words, "--progress", "none"],
        cwd=ROOT, capture_output=True, text=True, timeout=2300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((run_dir / "sealed.json").read_text())["num_tasks"] > 0
    assert list(run_dir.glob("logs/vllm-*.log")), "no engine was started"
    assert engines_of(run_dir) == []


def test_a_run_on_vllm_trains_adapters_and_leaves_no_engine_behind(tmp_path: Path) -> None:
    run(tmp_path / "run")
    assert list(tmp_path.glob("run/weights/*/*/adapter_model.safetensors")), "no member was trained"


def test_a_run_on_vllm_and_deepspeed_serves_what_a_group_trained(tmp_path: Path) -> None:
    run(tmp_path / "run", "training=deepspeed", "training.deepspeed.world_size=2", "budget.rollouts=256")
    results, writers = [], set()
    for frame in read_frames(RunDir(tmp_path / "run").journal_dir):
        for event in frame.events:
            match event:
                case ev.JobDone(result=result):
                    results.append(result)
                case ev.Issued(directive=ev.Lease(items=items)):
                    writers.update(item.version for item in items)
    assert {result.status for result in results} == {JobStatus.DONE}
    trained = {result.version.ref for result in results if result.version and result.version.operator == "train"}
    assert len({ref.policy for ref in trained}) == 2
    assert trained & writers, "no version that the group trained has written anything"
