"""The README's commands and its own-task example do what it says."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

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


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from coharness.cli import main; main({list(words)!r})"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    """The example's second command, on the in-process fleet and a small budget."""
    dry, real = (shlex.split(line)[1:] for line in block("console").strip().splitlines())
    told = command(folder, *dry)
    assert told.returncode == 0, told.stderr
    assert "successor" in told.stdout
    small = ["fleet.type=local", "budget.rollouts=800", "evaluation.sealed_per_cell=2", "evaluation.track_tasks=8"]
    small += ["training.groups_per_update=32", "gate.max_pairs=64", "evaluation.best_of_k=2"]
    done = command(folder, *real, *small, "--progress", "plain")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs" / "successor"


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


def test_the_verbs_that_read_a_run_work_on_it(finished: Path) -> None:
    status = command(finished.parent, "status", finished.name, "--json")
    assert json.loads(status.stdout)["rollouts"] >= 800
    for words in (["show"], ["show", "member"], ["show", "harness"], ["show", "member", "p0"], ["show", "episode"]):
        done = command(finished.parent, words[0], finished.name, *words[1:])
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def test_the_run_replays(finished: Path) -> None:
    done = command(finished.parent, "replay", finished.name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_champion_can_be_exported_once(finished: Path) -> None:
    done = command(finished.parent, "export", finished.name, "exported")
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in (finished.parent / "exported").iterdir()}
    assert {"config.json", "tokenizer.json", "harness.yaml"} <= names
    assert command(finished.parent, "export", finished.name, "exported").returncode == 2


def test_a_run_folder_is_never_overwritten(finished: Path) -> None:
    done = command(finished.parents[1], "run", "my_run.yaml", "fleet.type=local")
    assert done.returncode == 2
    assert "successor" in done.stderr


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
