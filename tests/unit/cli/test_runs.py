"""`run` and `resume`, on the in-process fleet and a base with random weights: ends, signals, exit codes."""

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from coharness.cli import main

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
ENDLESS = ["budget.rollouts=1000000", "--progress", "plain"]


class Terminal(io.StringIO):
    """Standard output that answers what it is shown: each awaited text, once and in order, sends a signal to this process."""

    def __init__(self, awaited: list[str], number: signal.Signals) -> None:
        super().__init__()
        self._awaited = list(awaited)
        self._number = number

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._awaited and self._awaited[0] in text:
            self._awaited.pop(0)
            os.kill(os.getpid(), self._number)
        return written


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from coharness.policy.tiny import build_tokenizer, new_model, save_base, tiny_config

    folder = tmp_path_factory.mktemp("project")
    save_base(new_model(tiny_config(), seed=0), build_tokenizer(), folder / "base", {})
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _in_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


def coharness(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def stopped(words: list[str], times: int, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and output of a command that gets a signal at its first progress, and another when it answers that one."""
    terminal = Terminal(["rollouts (", "what is in flight will finish"][:times], number)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        code = coharness(*words)
    return code, terminal.getvalue()


def test_a_run_ends_with_its_report_and_code_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert coharness("run", "config.yaml", "--json") == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["ended"] == "done"
    assert told["status"]["phase"] == "done"
    assert "rollouts" in err
    for name in (told["report"], told["sealed"], "runs/first/metrics.jsonl"):
        assert (project / name).is_file()


def test_resuming_a_run_that_is_done_only_completes_its_report(project: Path) -> None:
    run = project / "runs/first"
    journal = {path.name: path.stat().st_size for path in (run / "journal").iterdir()}
    (run / "report.html").unlink()
    assert coharness("resume", "runs/first") == 0
    assert (run / "report.html").is_file()
    assert {path.name: path.stat().st_size for path in (run / "journal").iterdir()} == journal


def test_a_run_that_was_moved_is_still_readable(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = project / "elsewhere" / "first"
    moved.parent.mkdir()
    (project / "runs/first").rename(moved)
    for words in (["status"], ["report"], ["replay"], ["watch"], ["show"], ["show", "member"], ["show", "harness"]):
        assert coharness(words[0], str(moved), *words[1:]) == 0
        assert capsys.readouterr().out.strip()


def test_minutes_that_are_spent_before_the_rollouts_are_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert coharness("run", "config.yaml", "run_dir=runs/short", "budget.minutes=0.02", *ENDLESS) == 3
    assert "raise budget.minutes" in capsys.readouterr().out


@pytest.mark.parametrize(("times", "number"), [(1, signal.SIGINT), (1, signal.SIGTERM), (2, signal.SIGINT)])
def test_a_run_that_is_stopped_says_how_to_resume(
    times: int, number: signal.Signals, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"runs/stopped-{number.name}-{times}"
    code, text = stopped(["run", "config.yaml", f"run_dir={run}", *ENDLESS], times, number, monkeypatch)
    assert code == 130, text
    assert f"coharness resume {run}" in text
    assert ("stopping at once" in text) == (times == 2)
    assert (project / run / "report.html").is_file()
    assert not (project / run / "sealed.json").exists()
    assert coharness("replay", run) == 0


def test_a_stopped_run_goes_on_where_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def status() -> dict[str, object]:
        coharness("status", run, "--json")
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    run = "runs/twice"
    stopped(["run", "config.yaml", f"run_dir={run}", *ENDLESS], 1, signal.SIGINT, monkeypatch)
    first = status()
    code, text = stopped(["resume", run, "--progress", "plain"], 1, signal.SIGINT, monkeypatch)
    assert code == 130, text
    second = status()
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert int(str(second["rollouts"])) >= int(str(first["rollouts"]))
    assert coharness("replay", run) == 0


def test_a_missing_base_is_found_before_anything_is_made(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert coharness("run", "config.yaml", "policy.base=./nothing", "run_dir=runs/never") == 4
    assert "policy.base" in capsys.readouterr().err
    assert not (project / "runs/never").exists()
