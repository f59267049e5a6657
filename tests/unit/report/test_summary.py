from pathlib import Path

import pytest

from coharness.records.work import Purpose
from coharness.report.history import project
from coharness.report.sealed_view import parse_sealed
from coharness.report.sentences import slow_workers
from coharness.report.summary import summarise, terminal_summary
from coharness.report.timeline import History
from coharness.report.wording import count, duration, evalue, percent, signed, time_unit
from tests.unit.report.synthetic import H0, Script, config, sealed_json, serving, write_sealed


def history_of(script: Script) -> History:
    return project(script.frames, run_id="run", config=script.config.model_dump(mode="json"))


def test_the_summary_is_plain_text_of_at_most_100_columns(finished_run: Path) -> None:
    text = terminal_summary(finished_run)
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert "\u202f" not in text


def test_the_summary_holds_the_claims_of_the_page_and_the_accepted_changes(finished_run: Path) -> None:
    words = " ".join(terminal_summary(finished_run).split())
    for sentence in parse_sealed(sealed_json()).claims():
        assert " ".join(sentence.replace("\u202f", " ").split()) in words
    assert "harness edit 0: format of count, parity: default → trace" in words
    assert "swap at inference" in words
    assert "co-evolution wins" not in words.lower()


def test_without_sealed_readings_the_summary_says_so(run_copy: Path) -> None:
    (run_copy / "sealed.json").unlink()
    text = terminal_summary(run_copy)
    assert "sealed tasks not read yet" in text
    assert "which is no evidence" in text


def test_sealed_readings_that_cannot_be_read_are_named(run_copy: Path) -> None:
    write_sealed(run_copy, sealed_json() | {"schema": 99})
    assert "has schema 99" in terminal_summary(run_copy)


def test_an_empty_run_has_a_summary(tmp_path: Path) -> None:
    assert "At 0 of 2,000 rollouts in 0 s" in terminal_summary(Script(config=config(tmp_path / "run")).write())


def test_square_brackets_in_names_are_no_markup() -> None:
    script = Script(config=config()).start("[bold red]x[/]")
    assert "[bold red]x[/]" in summarise(history_of(script), None)


@pytest.mark.parametrize(
    ("kind", "unsafe", "stamped"), [("code", True, True), ("code", False, False), ("builtin", True, False)]
)
def test_a_run_that_may_have_run_code_unprotected_is_stamped(kind: str, unsafe: bool, stamped: bool) -> None:
    tasks = [{"type": "code", "path": "tasks.jsonl", "family": "f"} if kind == "code" else {"type": "builtin"}]
    sections = {"tasks": tasks, "reward": {"sandbox": {"unsafe": unsafe}}}
    script = Script(config=config(**sections)).start()
    assert ("UNSAFE" in summarise(history_of(script), None)) is stamped


@pytest.mark.parametrize(("slow_s", "expected"), [(40.0, ["c"]), (12.0, [])])
def test_a_worker_below_half_of_the_others_median_speed_is_named(slow_s: float, expected: list[str]) -> None:
    script = Script(config=config()).start().spawn(0.0, H0, 0)
    for name, wall_s in (("a", 10.0), ("b", 10.0), ("c", slow_s)):
        script.work(1, 50, script.items(Purpose.TRAIN, 10, serving("p0", 0)), worker=name, wall_s=wall_s)
    assert [worker.name for worker, _ in slow_workers(history_of(script))] == expected


def test_figures_are_spelled_one_way() -> None:
    assert percent(0.4129) == "41.3\u202f%"
    assert [signed(x) for x in (1.26, -1.26, -0.01)] == ["+1.3", "−1.3", "0.0"]
    assert [duration(x) for x in (59.4, 61, 3_725)] == ["59 s", "1 min 01 s", "1 h 02 min"]
    assert [time_unit(x) for x in (20, 600, 20_000)] == [(1.0, "seconds"), (60.0, "minutes"), (3600.0, "hours")]
    assert count(51_200) == "51,200"
    assert [evalue(x).replace("\u202f", " ") for x in (0.0, 3.0, -9.0, 22.0)] == ["1", "20.1", "< 0.001", "3.6 × 10⁹"]
