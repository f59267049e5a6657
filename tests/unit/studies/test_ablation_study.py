"""An ablation of a YAML file, from the command line: cells by content, resume, tables; cells are written by hand, none runs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from coharness.cli import main
from coharness.records.errors import ConfigError
from coharness.studies.ablation_study import AblationStudy, open_ablation, place_of
from coharness.studies.cells import CELL_SCHEMA, CellFolder, read_spec
from coharness.studies.contract import Cell, StudyError
from coharness.studies.place import PlanPlace
from coharness.studies.runner import cell_folders
from coharness.studies.sources import Tree

PLAN = """
base: base.yaml
question: Do merges and selection help?
seeds: 4
controls: [frozen]
factors:
  merging: {without: [evolution.merge_every=0]}
  selection: {without: [evolution.exploit=none]}
"""
MEANS = {"full": 0.7, "without merging": 0.4, "without selection": 0.699, "frozen": 0.1}
NOISE = (0.01, -0.02, 0.0, 0.015)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("run_dir: runs/x\nbudget: {rollouts: 2000}\n")
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path / "plan.yaml"


def study_of(plan: Path) -> tuple[PlanPlace, AblationStudy]:
    place = place_of(plan)
    return place, open_ablation(place)


def result(score: float, tasks: str = "same") -> dict[str, Any]:
    return {
        "score": score,
        "tasks": tasks,
        "tokens_per_task": 9.5,
        "spent": {"rollouts": 2000, "tokens": 12_000, "cpu_s": 30.0},
    }


def finish(folder: CellFolder, of: dict[str, Any]) -> None:
    """Leave what a cell's process leaves."""
    folder.write_spec()
    known = {"schema": CELL_SCHEMA, "code_digest": folder.code, "cell_digest": folder.cell.digest, "result": of}
    known["sources"] = Tree(folder.place.root).digests(["coharness/studies/ablation_cells.py"])
    (folder.path / "cell.json").write_text(json.dumps(known))


def finish_all(
    plan: Path, score: Callable[[Cell], float] = lambda c: MEANS[c.label] + NOISE[c.seed] * len(c.label) / 9
) -> None:
    place, study = study_of(plan)
    cells = study.cells(range(study.num_seeds), quick=False, rollouts=None)
    for cell, folder in cell_folders(place, cells).items():
        finish(folder, result(score(cell)))


def end_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["ablate", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_finished_cells_become_tables_a_page_and_csv(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_all(plan)
    assert end_of(str(plan)) == 0
    said = capsys.readouterr()
    assert "16 cells, 16 finished before, 0 to run" in said.err
    assert "minimum detectable effect" in said.err
    assert "in the cells that are finished" in said.err
    folder = plan.parent / "runs" / "ablations" / "plan"
    rows = {row["contrast"]: row for row in csv.DictReader((folder / "contrasts.csv").open())}
    assert float(rows["merging: with − without"]["difference"]) == pytest.approx(0.3, abs=0.03)
    assert rows["merging: with − without"]["verdict"] == "helps"
    assert rows["selection: with − without"]["verdict"] == "undecided"
    assert rows["full − frozen"]["kind"] == "control"
    arms = [row["arm"] for row in csv.DictReader((folder / "arms.csv").open())]
    assert arms == list(MEANS)
    page = (folder / "ablation.html").read_text()
    assert "Do merges and selection help?" in page
    assert "none: the intervals do not single one out" in page
    assert "<script" not in page
    drawn = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert [text.text for text in drawn.iter("text")].count("merging: with − without") == 1
    assert json.loads((folder / "results.json").read_text())["num_cells"] == 16


def test_the_dry_run_says_what_could_be_detected_and_runs_nothing(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.write_text(PLAN + "expected_sd: 0.1\n")
    assert end_of(str(plan), "--dry-run") == 0
    said = capsys.readouterr().out
    assert "4 arms x 1 blocks x 4 seeds = 16 cells" in said
    assert "at a spread of 0.100 as expected" in said
    assert "without merging: evolution.merge_every=0" in said
    assert not (plan.parent / "runs").exists()


def test_cells_are_found_by_content_by_another_plan_and_not_after_a_change(plan: Path) -> None:
    finish_all(plan)
    other = plan.with_name("other.yaml")
    other.write_text(PLAN.replace("merging: {", "joining: {").replace("seeds: 4", "seeds: 2"))
    place, study = study_of(other)
    found = cell_folders(place, study.cells(range(2), quick=False, rollouts=None))
    assert {cell.label for cell in found} >= {"full", "without joining"}
    assert all(folder.result() is not None for folder in found.values())
    fewer = cell_folders(place, study.cells(range(2), quick=False, rollouts=1_000))
    assert all(folder.result() is None for folder in fewer.values())


def test_a_cells_folder_says_all_that_its_process_needs(plan: Path) -> None:
    finish_all(plan)
    place, study = study_of(plan)
    for cell, folder in cell_folders(place, study.cells([0], quick=False, rollouts=None)).items():
        found = read_spec(folder.path)
        assert (found.path, found.cell.digest, found.place) == (folder.path, cell.digest, place)


def test_a_file_that_tasks_come_from_is_part_of_the_cell(plan: Path) -> None:
    rows = plan.with_name("rows.jsonl")
    rows.write_text('{"question": "1", "answer": "2"}\n')
    plan.write_text(PLAN + "overrides: ['tasks=[{type: jsonl, path: rows.jsonl, family: x}]']\n")
    _, study = study_of(plan)
    before = [cell.digest for cell in study.cells([0], quick=False, rollouts=None)]
    rows.write_text('{"question": "1", "answer": "3"}\n')
    after = [cell.digest for cell in study.cells([0], quick=False, rollouts=None)]
    assert set(before) & set(after) == set()


def test_a_factor_that_changes_nothing_is_refused(plan: Path) -> None:
    plan.write_text(PLAN.replace("evolution.exploit=none", "evolution.exploit=posterior"))
    _, study = study_of(plan)
    with pytest.raises(ConfigError, match="full and without selection are the same run"):
        study.cells([0], quick=False, rollouts=None)


def test_blocks_are_strata_of_every_contrast(plan: Path) -> None:
    plan.write_text(PLAN + "blocks: {easy: ['tasks.0={type: builtin, max_level: 2}'], hard: []}\n")
    base = plan.with_name("base.yaml")
    base.write_text("run_dir: runs/x\nbudget: {rollouts: 2000}\ntasks: [{type: builtin}]\n")
    _, study = study_of(plan)
    cells = study.cells(range(4), quick=False, rollouts=None)
    assert len(cells) == 4 * 2 * 4
    gain = {"easy": 0.1, "hard": 0.3}
    found = {}
    for cell in cells:
        arm, _, block = cell.label.rpartition(" on ")
        found[cell] = result(gain[block] * (arm != "without merging") + NOISE[cell.seed] * len(arm) / 9)
    summary = study.summarise(found)
    figure = next(f for f in summary.figures if f.name == "effect/merging: with − without")
    assert figure.value == pytest.approx(0.2, abs=0.01)


def test_only_seeds_that_all_arms_have_finished_are_read(plan: Path) -> None:
    _, study = study_of(plan)
    cells = study.cells(range(3), quick=False, rollouts=None)
    found = {cell: result(0.5) for cell in cells if (cell.label, cell.seed) != ("frozen", 1)}
    assert study.readings(found).seeds == (0, 2)
    assert study.readings({}).scores == {}


def test_arms_that_read_other_sealed_tasks_cannot_be_paired(plan: Path) -> None:
    _, study = study_of(plan)
    cells = study.cells([0], quick=False, rollouts=None)
    found = {cell: result(0.5, tasks=cell.label) for cell in cells}
    with pytest.raises(StudyError, match="different sealed tasks"):
        study.readings(found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds: 4", "sedes: 4", "did you mean|seeds"),
        ("{without: [evolution.exploit=none]}", "{levels: {one: []}}", "factor selection has 1 level"),
        ("{without: [evolution.exploit=none]}", "{}", "exactly one of without and levels"),
        ("controls: [frozen]", "controls: [thawed]", "no control thawed"),
        ("seeds: 4", "seeds: 0", "seeds"),
        ("question: Do merges and selection help?", "blocks: {}", "blocks is empty"),
    ],
)
def test_mistakes_of_the_file_are_named(plan: Path, old: str, new: str, words: str) -> None:
    assert old in PLAN
    plan.write_text(PLAN.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        place_of(plan)


def test_an_override_that_does_not_fit_is_named_with_its_arm(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text(PLAN.replace("evolution.exploit=none", "evolution.exploit=nobody"))
    assert end_of(str(plan), "--dry-run") == 2
    assert "evolution.exploit" in capsys.readouterr().err


def test_a_missing_file_and_a_study_without_contrasts_are_told_apart(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of(str(plan.with_name("none.yaml"))) == 2
    assert "cannot read the config" in capsys.readouterr().err
