"""A whole run on the tiny base, trained on check and judge by a rule: it replays, and pays its judge in training alone."""

import json
from pathlib import Path

import pytest

from coharness.cli.judge_audit import audit_run, audit_text
from coharness.config.load import config_from
from coharness.loop.local_run import run_local
from coharness.loop.replay import replay_run
from coharness.loop.run_dir import RunDir
from coharness.testing.judge_server import ScriptedServer, fair_judge

RUBRIC = """\
name: brief
criteria:
- {name: brief, text: Nothing stands in it that is not needed., choices: {long: 0, fair: 0.5, short: 1}}
"""


@pytest.mark.slow
def test_a_run_trains_on_check_and_judge(tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text(RUBRIC)
    with ScriptedServer(fair_judge(lambda question, answer: 1.0 / (1 + len(answer) / 8))) as server:
        config = config_from(
            {
                "run_dir": str(tmp_path / "run"),
                "fleet": {"type": "local"},
                "budget": {"rollouts": 240, "minutes": 9},
                "population": {"num_policies": 1, "num_harnesses": 1},
                "tasks": [{"type": "builtin", "max_level": 1, "families": ["parity", "maximum"]}],
                "training": {"objective": "grpo", "group_size": 4, "groups_per_update": 8},
                "evaluation": {"track_tasks": 4, "sealed_per_cell": 2, "best_of_k": 0},
                "gate": {"max_pairs": 32, "null_tests": 0},
                "evolution": {"merge_every": 0},
                "harness": {
                    "level_high": 1,
                    "formats": ["plain"],
                    "reward_rule": {"value": {"verifier_first": {"check": "exact", "judge": "judge/score"}}},
                },
                "reward": {
                    "judge": {"endpoints": [server.base], "model": "scripted", "rubric": str(tmp_path / "rubric.yaml")}
                },
            }
        )
        RunDir.create(config)
        run_local(tmp_path / "run", resume=False)
        assert server.requests, "the judge was asked"
        asked = len(server.requests)
    run = RunDir.open(tmp_path / "run")
    assert (run.path / "judge" / "cache.sqlite").is_file()
    assert asked < 240, "equal answers are judged once, and evaluation pays nothing"
    # Replay decides anew from the journal alone: no endpoint is there any more.
    found = audit_run(run.path, pairs=tmp_path / "pairs.jsonl", pay=False)
    assert found["audited"] > 0, "judgments are read from the cache, without an endpoint"
    assert found["lenient"]["count"] + found["strict"]["count"] <= found["audited"]
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert len(pairs) == found["pairs"]
    assert all(pair["better"] != pair["worse"] for pair in pairs)
    assert "rated high and wrong" in audit_text(found)
    report = replay_run(run.path)
    assert report.state_digest == report.recorded_digest
