"""The README's commands and its own-task example do what it says."""

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from coharness.cli import main
from coharness.config.load import load_config
from coharness.tasks.sources import build_sources
from tests.arch.source import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    assert len(found) == 1, f"the README has {len(found)} blocks of {language}"
    return str(found[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "my_tasks.py").write_text(block("python"), encoding="utf-8")
    (folder / "my_run.yaml").write_text(block("yaml"), encoding="utf-8")
    return folder


def coharness(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    """The example's second command, on the in-process fleet and a small budget."""
    *_, real = block("console").strip().splitlines()
    small = ["fleet.type=local", "budget.rollouts=800", "evaluation.sealed_per_cell=2", "evaluation.track_tasks=8"]
    small += ["training.groups_per_update=32", "gate.max_pairs=64", "evaluation.best_of_k=2"]
    with chdir(folder):
        assert coharness(*shlex.split(real)[1:], *small, "--progress", "plain") == 0
    return folder / "runs" / "successor"


def test_the_first_command_tells_what_would_run_and_touches_nothing(folder: Path) -> None:
    told, *_ = block("console").strip().splitlines()
    before = sorted(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "coharness", *shlex.split(told)[1:]],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "successor" in done.stdout
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in str(path)] == before


def test_the_example_is_about_twenty_lines() -> None:
    assert len([line for line in block("python").splitlines() if line.strip()]) <= 20


def test_the_example_makes_the_tasks_it_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    sources = build_sources(load_config(folder / "my_run.yaml").tasks, folder)
    task = sources.make("successor", 1, 7)
    word = task.question.removeprefix("next ")
    assert len(word) == 4
    assert task.answer == "".join(dict(zip("abcdef", "bcdefa", strict=True))[letter] for letter in word)


def test_the_example_runs_to_its_report(finished: Path) -> None:
    assert (finished / "report.html").stat().st_size > 1_000
    assert json.loads((finished / "sealed.json").read_text(encoding="utf-8"))["schema"] == 1


def test_the_verbs_that_read_a_run_work_on_it(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert coharness("status", str(finished), "--json") == 0
    assert json.loads(capsys.readouterr().out)["phase"] == "done"
    for words in ([], ["member"], ["harness"], ["proposal"], ["member", "p0"], ["episode"]):
        assert coharness("show", str(finished), *words) == 0
        assert capsys.readouterr().out.strip()


def test_an_episode_is_shown_as_text(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert coharness("show", str(finished), "episode", "--json") == 0
    item = json.loads(capsys.readouterr().out)[-1]["item"]
    assert coharness("show", str(finished), "episode", str(item)) == 0
    assert "prompt: next " in capsys.readouterr().out


def test_the_run_replays(finished: Path) -> None:
    assert coharness("replay", str(finished)) == 0


def test_the_champion_can_be_exported_once(finished: Path) -> None:
    exported = finished.parent / "exported"
    assert coharness("export", str(finished), str(exported)) == 0
    assert {"config.json", "tokenizer.json", "harness.yaml"} <= {path.name for path in exported.iterdir()}
    assert coharness("export", str(finished), str(exported)) == 2


def test_a_run_folder_is_never_overwritten(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(finished.parents[1]):
        assert coharness("run", "my_run.yaml", "fleet.type=local") == 2
    assert "coharness resume" in capsys.readouterr().err


def test_the_tree_names_folders_that_are_there() -> None:
    tree = README.partition("## What is where")[2].partition("\n## ")[0]
    named = re.findall(r"^ {4}( *)(\w+)/  ", tree, flags=re.MULTILINE)
    assert len(named) > 10
    for indent, name in named:
        assert (ROOT / "coharness" / name if indent else ROOT / name).is_dir(), name


def test_the_verbs_in_the_table_are_those_of_the_command_line() -> None:
    from coharness.cli.main import app

    table = README.partition("| verb |")[2].partition("\n\n")[0]
    listed = {
        word for cell in re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE) for word in re.findall(r"`(\w+)", cell)
    }
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert listed == known


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z]+)\b", README)) & {"env", "quickstart", "test", "check"}:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
