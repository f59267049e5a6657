"""`coharness tune` from the command line: run, resume, replay, schedule, play."""

import json
from pathlib import Path

import pytest

from coharness.cli import main
from coharness.tune.config import dump_tune_config
from tests.arch.source import ROOT
from tests.unit.tune.small import config

EXAMPLE = ROOT / "experiments" / "benchmarks" / "population" / "triangle.yaml"


def end_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def search(tmp_path: Path) -> Path:
    (tmp_path / "search.yaml").write_text(dump_tune_config(config(tmp_path / "a")))
    return tmp_path / "search.yaml"


def test_a_search_is_run_checked_and_its_schedule_played(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(search.parent / "a")
    assert end_of(str(search), "members=3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["end"], found["steps"]) == ("done", 90)
    assert end_of("replay", folder) == 0
    assert "all as recorded" in capsys.readouterr().out
    schedule = str(search.parent / "schedule.json")
    assert end_of("schedule", folder, schedule) == 0
    assert end_of("play", schedule) == 0
    assert "every segment as recorded" in capsys.readouterr().out
    assert end_of("play", schedule, "--seed", "3") == 0
    assert end_of("resume", folder) == 0


def test_a_dry_run_prints_the_resolved_config_and_touches_nothing(
    search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of("run", str(search), "interval=4", "--dry-run") == 0
    assert "interval: 4" in capsys.readouterr().out
    assert not (search.parent / "a").exists()


def test_the_example_is_a_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of(str(EXAMPLE), "--dry-run") == 0
    assert "type: truncation" in capsys.readouterr().out


def test_a_schedule_that_does_not_match_is_a_failed_check(search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of(str(search)) == 0
    schedule = search.parent / "schedule.json"
    assert end_of("schedule", str(search.parent / "a"), str(schedule), "--checkpoint", "p0-1") == 0
    data = json.loads(schedule.read_text())
    data["body"][2][0][6]["score"] += 1.0
    schedule.write_text(json.dumps(data))
    assert end_of("play", str(schedule)) == 4
    assert "p0-1: score was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("nowhere.yaml",), "cannot read the config"),
        (("resume", "nowhere"), "not a search's folder"),
        (("play", "nowhere.json"), "cannot be read as a schedule"),
    ],
)
def test_a_mistake_is_one_message_and_code_2(
    words: tuple[str, ...], match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of(*words) == 2
    assert match in capsys.readouterr().err


def test_minutes_that_are_spent_leave_a_search_that_can_be_resumed(
    search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of(str(search), "budget.minutes=1e-9") == 3
    assert "go on with: coharness tune resume" in capsys.readouterr().err
