"""A whole run whose members are trained by a group of processes."""

from pathlib import Path

from coharness.config.load import config_from
from coharness.config.schema import RunConfig
from coharness.loop.build import fold_run
from coharness.loop.engine import StopKind
from coharness.loop.journal import read_frames
from coharness.loop.local_run import run_local
from coharness.loop.run_dir import RunDir
from coharness.policy.weights import read_optimizer, read_weights, tensor_digest
from coharness.records import events as ev
from coharness.records.training import JobResult, JobStatus


def small_config(run_dir: Path) -> RunConfig:
    return config_from(
        {
            "run_dir": str(run_dir),
            "budget": {"rollouts": 400, "minutes": 60},
            "population": {"num_policies": 2, "num_harnesses": 2},
            "fleet": {"type": "local"},
            "tasks": [{"type": "builtin", "max_level": 2}],
            "training": {
                "backend": "deepspeed",
                "groups_per_update": 24,
                "row_tokens": 256,
                "deepspeed": {"stage": 2, "world_size": 2},
            },
            "evaluation": {"track_tasks": 0},
            "gate": {"null_tests": 0},
            "evolution": {"merge_every": 4},
        }
    )


def test_a_run_trains_and_merges_its_members_on_two_ranks(tmp_path: Path) -> None:
    run = RunDir.create(small_config(tmp_path / "run"))
    assert run_local(run.path) is StopKind.DONE
    events = [event for frame in read_frames(run.journal_dir) for event in frame.events]
    results = [event.result for event in events if isinstance(event, ev.JobDone)]
    assert [result for result in results if result.status is not JobStatus.DONE] == []
    updates = [result for result in results if "loss/sft" in result.metrics]
    assert len(updates) >= 4
    assert {result.version.ref.policy for result in updates if result.version} >= {"p0", "p1"}
    assert all(result.cpu_s > 0 for result in updates)
    check_the_last_of_each_member(run, updates)


def check_the_last_of_each_member(run: RunDir, updates: list[JobResult]) -> None:
    alive = {str(version.ref): version for version in fold_run(run).state.versions.values()}
    last = {result.version.ref.policy: result.version for result in updates if result.version}
    for version in last.values():
        if str(version.ref) in alive:
            assert tensor_digest(read_weights(run.path, version.weights)) == version.weights.digest
            assert read_optimizer(run.path, version.weights)
