"""The studies of the reward harness: their smokes run, their bars name figures that they have, their budgets are their own."""

from pathlib import Path

import pytest

from coharness.records.errors import ConfigError
from coharness.studies.bars import read_bars
from coharness.studies.contract import Study, StudyError, Summary
from coharness.studies.place import load_study, locate
from coharness.studies.table import table_text
from experiments.reward.llmbar import data_file, load

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("panel", "calibration", "monitors", "service")


def study_of(name: str) -> Study:
    return load_study(locate(ROOT / "experiments" / "reward" / name))


def needs_data() -> None:
    try:
        data_file()
    except StudyError as error:
        pytest.skip(str(error))


def smoke(name: str, folder: Path, arms: tuple[str, ...] | None = None) -> Summary:
    study = study_of(name)
    cells = [c for c in study.cells([0], quick=True, rollouts=None) if arms is None or c.arm in arms]
    results = {}
    for cell in cells:
        place = folder / cell.digest
        place.mkdir()
        results[cell] = study.run_cell(cell, place)
    return study.summarise(results)


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_one_and_refuses_rollouts(name: str) -> None:
    study = study_of(name)
    assert isinstance(study, Study)
    assert study.name == f"reward/{name}"
    with pytest.raises(ConfigError, match="leave --rollouts out"):
        study.budget(quick=False, rollouts=100)


def held(name: str, summary: Summary) -> None:
    figures = {figure.name for figure in summary.figures}
    assert {bar.figure for bar in read_bars(ROOT / "experiments" / "reward" / name / "bars.json")} <= figures
    assert all(table_text(table) for table in summary.tables)


def test_the_monitors_smoke_has_what_its_bars_name(tmp_path: Path) -> None:
    held("monitors", smoke("monitors", tmp_path))


def test_the_calibration_smoke_has_what_its_bars_name(tmp_path: Path) -> None:
    needs_data()
    held("calibration", smoke("calibration", tmp_path))


def test_the_recorded_panel_is_that_of_the_reference(tmp_path: Path) -> None:
    needs_data()
    summary = smoke("panel", tmp_path, ("unanchored",))
    figures = {figure.name: figure.value for figure in summary.figures}
    assert figures["majority/accuracy"] == pytest.approx(0.603, abs=5e-4)
    assert figures["best/accuracy"] == pytest.approx(0.845, abs=5e-4)
    assert figures["panel/effective_votes"] == pytest.approx(1.95, abs=0.02)
    assert figures["unanchored_dawid_skene/accuracy"] == pytest.approx(0.48, abs=0.01)
    assert figures["unanchored_dawid_skene/confidence"] > 0.9
    assert figures["unanchored_dawid_skene/flagged"] == 1.0


def test_the_recorded_verdicts_are_as_they_were_described() -> None:
    needs_data()
    recorded = load()
    assert len(recorded.orders) == 65
    assert all(rows.shape == (2, 419) for rows in recorded.orders.values())
    assert sum(int((rows == 0).sum()) for rows in recorded.orders.values()) == 134
    assert (recorded.longer == recorded.truth).mean() == pytest.approx(0.27, abs=0.005)
    first = recorded.orders["Falcon/CoT"]
    assert (first[0] > 0).mean() > 0.9, "a judge that prefers whatever is shown first"
