"""`run` and `resume` as processes, on the in-process fleet and a base with random weights: ends, signals, exit codes."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.arch.source import ROOT

COMMAND = [sys.executable, "-m", "coharness"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
CONFIG = """
run_dir: runs/first
fleet: {type: local, batch_items: 16}
policy: {base: ./base}
tasks: [{type: builtin, families: [parity, maximum], max_level: 2}]
budget: {rollouts: 192}
population: {num_policies: 2, num_harnesses: 2}
training: {groups_per_update: 32}
evaluation: {sealed_per_cell: 2, track_tasks: 4, best_of_k: 2, tokens_per_task: 16}
gate: {max_pairs: 32, null_tests: 1, null_pairs: 32, look_every: 16}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coharness.policy.tiny import build_tokenizer, new_model, save_base, tiny_config

    folder = tmp_path_factory.mktemp("project")
    save_base(new_model(tiny_config(), seed=0), build_tokenizer(), folder / "base", {})
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


def coharness(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], cwd=project, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def signalled(project: Path, words: list[str], at: str, number: signal.Signals, times: int = 1) -> tuple[int, str]:
    """Exit code and standard output of a command that gets a signal when its output holds `at`.

    A further signal is sent when the answer to the one before was read, so that none is lost.
    """
    with subprocess.Popen(
        [*COMMAND, *words], cwd=project, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        text, sent, deadline = "", 0, time.monotonic() + 240
        awaited = [at, "what is in flight will finish"][:times]
        while select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                return process.wait(timeout=60), text
            text += chunk.decode()
            if sent < len(awaited) and awaited[sent] in text:
                process.send_signal(number)
                sent += 1
        process.kill()
        raise AssertionError(f"no end within the deadline; it said:\n{text}")


def test_a_run_ends_with_its_report_and_code_0(project: Path) -> None:
    done = coharness(project, "run", "config.yaml", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ended"] == "done"
    assert told["status"]["phase"] == "done"
    assert (project / told["report"]).is_file()
    assert (project / told["sealed"]).is_file()
    assert "rollouts" in done.stderr
    assert (project / "runs/first/metrics.jsonl").is_file()


def test_minutes_that_are_spent_before_the_rollouts_are_code_3(project: Path) -> None:
    done = coharness(
        project, "run", "config.yaml", "run_dir=runs/short", "budget.rollouts=100000", "budget.minutes=0.03"
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "raise budget.minutes" in done.stdout


@pytest.mark.parametrize(("times", "number"), [(1, signal.SIGINT), (1, signal.SIGTERM), (2, signal.SIGINT)])
def test_a_run_that_is_stopped_says_how_to_resume_and_can_be(project: Path, times: int, number: signal.Signals) -> None:
    run = f"runs/stopped-{number.name}-{times}"
    words = ["run", "config.yaml", f"run_dir={run}", "budget.rollouts=100000", "--progress", "plain"]
    code, text = signalled(project, words, at="rollouts", number=number, times=times)
    assert code == 130, text
    assert f"coharness resume {run}" in text
    assert ("stopping at once" in text) == (times == 2)
    assert not (project / run / "sealed.json").exists()
    assert coharness(project, "replay", run).returncode == 0

    again, text = signalled(project, ["resume", run, "--progress", "plain"], at="rollouts", number=signal.SIGINT)
    assert again == 130, text
    status = json.loads(coharness(project, "status", run, "--json").stdout)
    assert status["epoch"] == 2


def test_resuming_a_run_that_is_done_only_completes_its_report(project: Path) -> None:
    config = ["run_dir=runs/done", "fleet.type=local"]
    assert coharness(project, "run", "config.yaml", *config).returncode == 0
    run = project / "runs/done"
    journal = {path.name: path.stat().st_size for path in (run / "journal").iterdir()}
    (run / "report.html").unlink()
    (run / "sealed.json").unlink()
    done = coharness(project, "resume", "runs/done")
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").is_file()
    assert (run / "sealed.json").is_file()
    assert {path.name: path.stat().st_size for path in (run / "journal").iterdir()} == journal


def test_a_run_that_was_moved_is_still_readable(project: Path) -> None:
    moved = project / "elsewhere" / "first"
    moved.parent.mkdir()
    (project / "runs/first").rename(moved)
    for words in (["status"], ["report"], ["replay"], ["show"], ["show", "harness"], ["watch"]):
        done = coharness(project, words[0], str(moved), *words[1:])
        assert done.returncode == 0, done.stderr


def test_a_missing_base_is_found_before_anything_is_made(project: Path) -> None:
    done = coharness(project, "run", "config.yaml", "policy.base=./nothing", "run_dir=runs/never")
    assert done.returncode == 4
    assert "policy.base" in done.stderr
    assert not (project / "runs/never").exists()
