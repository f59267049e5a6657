import json
from pathlib import Path

import pytest

from coharness.cli import exit_codes, main
from coharness.cli.exit_codes import ExitCode, code_of
from coharness.records import errors
from tests.arch.source import ROOT

QUICKSTART = str(ROOT / "experiments" / "quickstart" / "config.yaml")


def end_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "BAD_CONFIG": 2,
        "BUDGET_SPENT": 3,
        "CHECK_FAILED": 4,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), ExitCode.BAD_CONFIG),
        (errors.TaskError("x"), ExitCode.BAD_CONFIG),
        (errors.PreflightError("x"), ExitCode.CHECK_FAILED),
        (errors.ReplayMismatch("x"), ExitCode.CHECK_FAILED),
        (errors.JournalError("x"), ExitCode.FAILED),
        (errors.WeightsError("x"), ExitCode.FAILED),
    ],
)
def test_each_error_has_its_code(error: errors.CoharnessError, code: exit_codes.ExitCode) -> None:
    assert code_of(error) is code


def test_a_bad_config_is_one_message_on_standard_error_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of("run", QUICKSTART, "population.num_polices=4") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "did you mean population.num_policies?" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("place", [0, 1, 3])
def test_debug_keeps_the_traceback_wherever_it_stands(place: int) -> None:
    words = ["run", QUICKSTART, "seed=x"]
    words.insert(place, "--debug")
    with pytest.raises(errors.ConfigError):
        main(words)


@pytest.mark.parametrize("words", [["rnu"], ["run"], ["status"], ["resume", "--progress", "loud", "x"]])
def test_a_wrong_command_line_is_code_2(words: list[str]) -> None:
    assert end_of(*words) == 2


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from coharness import __version__

    assert end_of("--version") == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize("verb", ["resume", "status", "watch", "report", "replay", "show"])
def test_a_folder_that_is_no_run_is_code_2(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_of(verb, str(tmp_path / "nothing")) == 2
    assert "nothing" in capsys.readouterr().err


def test_export_refuses_a_folder_that_exists(tmp_path: Path) -> None:
    assert end_of("export", str(tmp_path), str(tmp_path)) == 2


def test_a_dry_run_tells_everything_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert end_of("run", QUICKSTART, "budget.rollouts=6400", "--dry-run") == 0
    out = capsys.readouterr().out
    for part in ("rollouts: 6400", "parity", "3 policies × 3 harnesses", "not charged"):
        assert part in out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_as_json_is_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    end_of("run", QUICKSTART, "--population.num-policies", "2", "--dry-run", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["config"]["population"]["num_policies"] == 2
    assert told["plan"]["num_policies"] == 2
    assert isinstance(told["findings"], list)
