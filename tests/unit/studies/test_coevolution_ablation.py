"""The ablation of the co-evolution study: which of its cells are shared, and what it makes of them."""

from pathlib import Path
from typing import Any

import pytest

from coharness.studies.ablation_study import PlannedStudy
from coharness.studies.bars import read_bars
from coharness.studies.contract import Cell, StudyError
from coharness.studies.place import load_study, locate
from coharness.studies.runner import cell_folders
from experiments.ablation.study import STUDY
from experiments.coevolution.study import STUDY as COEVOLUTION
from tests.unit.studies.test_coevolution import result

ROOT = Path(__file__).resolve().parents[3]
SHARED = {
    "full": "async",
    "without harness evolution": "weights_only",
    "frozen": "frozen",
    "randomized": "randomized",
}


def test_cells_of_equal_runs_are_the_very_cells_of_the_co_evolution_study() -> None:
    ours = STUDY.cells([0, 1], quick=False, rollouts=None)
    theirs = COEVOLUTION.cells([0, 1], quick=False, rollouts=None)
    place = locate("ablation", ROOT)
    mine = {f.path: c for c, f in cell_folders(place, ours).items()}
    other = {f.path: c for c, f in cell_folders(place.sibling("coevolution"), theirs).items()}
    shared = {(mine[path].label, other[path].arm) for path in mine.keys() & other.keys()}
    assert shared == set(SHARED.items())
    assert len(mine) == len(ours) == 16
    assert all(path.is_relative_to(ROOT / "runs" / "studies" / "coevolution") for path in mine)


def test_each_arm_changes_the_one_thing_that_it_names() -> None:
    runs = {cell.label: cell.config["run"] for cell in STUDY.cells([0], quick=False, rollouts=None)}

    def changed(arm: str) -> dict[str, Any]:
        return {
            f"{section}.{key}" if isinstance(value, dict) else section: new
            for section, value in runs["full"].items()
            for key in (value if isinstance(value, dict) else [""])
            if (new := runs[arm][section][key] if key else runs[arm][section]) != (value[key] if key else value)
            and key != "best_of_k"
        }

    assert changed("without harness evolution") == {"schedule": "weights_only"}
    assert changed("without merging") == {"evolution.merge_every": 0}
    assert changed("without selection") == {"evolution.exploit": "none"}
    assert changed("without moving hyperparameters") == {"evolution.hyperparameters": "fixed"}
    assert changed("single") == {"population.num_policies": 1}


def cells(ends: dict[str, float], num_seeds: int = 4) -> dict[Cell, dict[str, Any]]:
    return {
        cell: result(min(1.0, ends[cell.label] + 0.04 * ((cell.seed + len(cell.label)) % 2)))
        for cell in STUDY.cells(range(num_seeds), quick=False, rollouts=None)
    }


ENDS = {
    "full": 0.8, "without harness evolution": 0.2, "without merging": 0.8, "without selection": 0.76,
    "without moving hyperparameters": 0.8, "frozen": 0.04, "randomized": 0.72, "single": 0.6,
}  # fmt: skip


def test_it_reports_every_planned_contrast_and_names_no_winner_among_equals() -> None:
    summary = STUDY.summarise(cells(ENDS))
    figures = {figure.name: figure for figure in summary.figures}
    assert figures["effect/harness evolution: with − without"].value == pytest.approx(0.6, abs=0.05)
    said = {row[0]: row[1] for table in summary.tables for row in table.rows if table.title == "What may be said"}
    assert str(said["harness evolution: with − without"]).startswith("it helps")
    assert str(said["merging: with − without"]).startswith("no difference shown")
    assert said["best arm"] == "none: the intervals do not single one out"
    assert {bar.figure for bar in read_bars(ROOT / "experiments" / "ablation" / "bars.json")} <= set(figures)


def test_arms_must_have_read_the_same_sealed_tasks() -> None:
    made = cells(ENDS, 1)
    odd = next(cell for cell in made if cell.label == "single")
    made[odd] = {**made[odd], "tasks": made[odd]["tasks"][::-1]}
    with pytest.raises(StudyError, match="cannot be paired"):
        STUDY.readings(made)


def test_it_is_a_planned_study_whose_smoke_shares_a_cell() -> None:
    study = load_study(locate("ablation", ROOT))
    assert isinstance(study, PlannedStudy)
    smoke = {cell.label: cell for cell in study.cells([0], quick=True, rollouts=None)}
    assert set(smoke) == {"full", "without moving hyperparameters"}
    assert smoke["full"].digest == COEVOLUTION.cells([0], quick=True, rollouts=None)[0].digest
    assert isinstance(load_study(locate("coevolution", ROOT)), PlannedStudy) is False
