"""Cells of a study in Ray actors end as those in processes of this machine do."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.cells import launch_cell
from coharness.studies.place import StudyPlace, locate
from coharness.studies.runner import CellsFailed, RunRequest, run_study
from tests.unit.studies.conftest import entered
from tests.unit.studies.toy import write_project


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StudyPlace]:
    root = tmp_path / "project"
    write_project(root)
    for entered_root in entered(root, monkeypatch):
        yield locate("toy", entered_root)


def test_a_study_on_actors_has_the_figures_of_processes_and_reuses_its_cells(
    ray_session: object, toy: StudyPlace
) -> None:
    request = RunRequest(place=toy, num_seeds=2)
    there = run_study(request, [].append, launch=launch_cell)
    said: list[str] = []
    again = run_study(request, said.append)
    assert said == ["toy: 4 cells, 4 finished before, 0 to run"]
    assert replace(again, created="") == replace(there, created="")
    for path in toy.cells_folder.glob("*/cell.json"):
        path.unlink()
    here = run_study(request, [].append)
    assert here.figures == there.figures


def test_a_cell_that_fails_in_its_actor_is_named_with_the_reason(ray_session: object, toy: StudyPlace) -> None:
    toy.cells_folder.mkdir(parents=True)
    (toy.cells_folder / "fail").touch()
    with pytest.raises(CellsFailed, match="the toy was told to fail"):
        run_study(RunRequest(place=toy, num_seeds=1), [].append, launch=launch_cell)


def test_an_actor_that_exceeds_the_cells_deadline_is_ended(ray_session: object, toy: StudyPlace) -> None:
    source = toy.folder / "study.py"
    source.write_text(source.read_text().replace("cell_deadline_s: float = 60.0", "cell_deadline_s: float = 6.0"))
    toy.cells_folder.mkdir(parents=True)
    (toy.cells_folder / "hang").touch()
    with pytest.raises(CellsFailed, match="did not end within 6 s"):
        run_study(RunRequest(place=toy, num_seeds=1), [].append, launch=launch_cell)
