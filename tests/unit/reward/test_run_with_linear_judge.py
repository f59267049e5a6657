"""A whole run on the tiny base whose judge is content with everything: alarm, repair from the store, a new judge, replay."""

from pathlib import Path

import pytest

from coharness.cli.judge_audit import audit_run, audit_text
from coharness.config.load import config_from
from coharness.loop.build import fold_run
from coharness.loop.local_run import run_local
from coharness.loop.replay import replay_run
from coharness.loop.replay_store import read_episodes
from coharness.loop.run_dir import RunDir
from coharness.reward.linear.files import LinearShelf
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources
from experiments.reward.reflection.judge import write_inputs

FAMILIES = ("reverse", "sort")


@pytest.mark.slow
def test_a_run_mends_its_judge(tmp_path: Path) -> None:
    sources = TaskSources([BuiltinSource(FAMILIES, max_level=3)])
    files = write_inputs(tmp_path / "judge", sources, FAMILIES, 3, bias={"one": 60.0}, seed=0)
    config = config_from(
        {
            "run_dir": str(tmp_path / "run"),
            "schedule": "weights_only",
            "fleet": {"type": "local"},
            "budget": {"rollouts": 640, "minutes": 9},
            "population": {"num_policies": 1, "num_harnesses": 1},
            "tasks": [{"type": "builtin", "max_level": 3, "families": list(FAMILIES)}],
            "training": {"objective": "grpo", "group_size": 4, "groups_per_update": 16},
            "evaluation": {"track_tasks": 6, "sealed_per_cell": 2, "best_of_k": 0},
            "gate": {"max_pairs": 32, "null_tests": 0},
            "evolution": {"merge_every": 0},
            "harness": {
                # What the base cannot do: every answer is wrong, and references alone say what is right.
                "level_low": 3,
                "level_high": 3,
                "formats": ["plain"],
                "reward_rule": {"value": {"sum": {"of": {"judge/score": 1}}}},
            },
            "reward": {
                "judge": {"type": "linear", **files},
                "monitor": {
                    "audit_share": 1.0,
                    "step_audits": 16,
                    "warmup_steps": 1,
                    "healthy_conflict_rate": 0.02,
                    "ladder": ["repair"],
                },
            },
        }
    )
    run = RunDir.create(config)
    run_local(run.path)
    state = fold_run(run).state
    assert state.incidents, "wrong answers that are rated high raise an alarm"
    assert [term.how for term in state.terms] == ["start", "mended"], state.refused_judges
    first, second = (term.judge for term in state.terms)
    assert LinearShelf(run.judges_dir).model(second).parent == first
    table = read_episodes(run.replay_dir)
    assert {first, second} <= set(table["judge"].to_pylist())
    found = audit_run(run.path, pairs=None, pay=False)
    before, after = found["versions"]
    assert (before["judge"], after["judge"]) == (first, second)
    assert after["lenient"][1] < before["lenient"][1] / 2
    assert second in audit_text(found)
    report = replay_run(run.path)
    assert report.state_digest == report.recorded_digest
