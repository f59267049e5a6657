import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from coharness.records.errors import ConfigError
from coharness.studies import cells
from coharness.studies.contract import Cell, StudyError
from coharness.studies.place import StudyPlace, load_study, locate
from coharness.studies.results import read_results
from coharness.studies.runner import CellsFailed, RunRequest, cell_folders, run_study
from tests.unit.studies.toy import TOY, forget_studies, replace_in, run, write_study

WAIT_S = 60.0


def folders_of(place: StudyPlace) -> list[Path]:
    found = load_study(place).cells(range(2), quick=False, rollouts=None)
    return [folder.path for folder in cell_folders(place, found).values()]


def times_run(folder: Path) -> int:
    return len((folder / "runs.txt").read_text()) if (folder / "runs.txt").exists() else 0


def test_a_full_run_writes_its_results_and_plots(ran: StudyPlace) -> None:
    results = read_results(ran.results_path(quick=False))
    assert (results.study, results.quick, results.seeds, results.num_cells) == ("toy", False, (0, 1), 4)
    assert results.command == "coharness study run experiments/toy"
    assert results.budget == {"draws": 100}
    assert {"python", "numpy", "commit"} <= set(results.versions)
    figure = results.figure("gain")
    assert figure is not None
    assert figure.low is not None
    assert figure.low < figure.value < 6
    assert figure.value == pytest.approx(5.0, abs=0.5)
    assert (ran.folder / "gain.svg").read_text() == "<svg/>"


def test_each_cell_runs_once_with_one_thread_in_a_folder_of_its_own(ran: StudyPlace) -> None:
    folders = folders_of(ran)
    assert len(set(folders)) == 4
    assert [times_run(folder) for folder in folders] == [1, 1, 1, 1]
    assert json.loads((folders[0] / "cell.json").read_text())["result"]["threads"] == "1"


def test_finished_cells_are_reused_and_a_cell_without_result_is_run(ran: StudyPlace) -> None:
    before = read_results(ran.results_path(quick=False))
    lost = folders_of(ran)[2]
    (lost / "cell.json").unlink()
    results, said = run(ran)
    assert "3 finished before, 1 to run" in said[0]
    assert sorted(times_run(folder) for folder in folders_of(ran)) == [1, 1, 1, 2]
    assert results.figures == before.figures


def test_another_number_of_seeds_reuses_the_seeds_it_shares(ran: StudyPlace) -> None:
    results, said = run(ran, num_seeds=1)
    assert said == ["toy: 2 cells, 2 finished before, 0 to run"]
    assert results.command == "coharness study run experiments/toy --seeds 1"
    figure = results.figure("gain")
    assert figure is not None
    assert (figure.low, figure.high) == (None, None)


def test_another_budget_or_other_code_is_another_cell(ran: StudyPlace) -> None:
    study = load_study(ran)
    before = folders_of(ran)
    wider = cell_folders(ran, study.cells(range(2), quick=False, rollouts=200))
    assert not {folder.path for folder in wider.values()} & set(before)
    replace_in(ran.folder / "study.py", "rng.normal(", "rng.standard_normal() + rng.normal(")
    assert not set(folders_of(ran)) & set(before)


def test_a_smoke_has_results_of_its_own(project: Path) -> None:
    place = locate("toy")
    results, _ = run(place, quick=True)
    assert results.quick
    assert results.seeds == (0,)
    assert place.results_path(quick=True).name == "results.quick.json"
    assert not place.results_path(quick=False).exists()
    assert not (place.folder / "gain.svg").exists()


def test_a_failed_cell_is_reported_with_its_log_and_nothing_is_written(project: Path) -> None:
    place = locate("toy")
    place.cells_folder.mkdir(parents=True)
    (place.cells_folder / "fail").touch()
    with pytest.raises(CellsFailed, match=r"2 of 2 cells failed(?s:.*)told to fail(?s:.*)told to fail"):
        run(place, quick=True)
    assert not place.results_path(quick=True).exists()
    (place.cells_folder / "fail").unlink()
    assert run(place, quick=True)[0].num_cells == 2


def test_a_cell_that_hangs_is_ended_at_its_deadline(project: Path) -> None:
    place = locate("toy")
    replace_in(place.folder / "study.py", "cell_deadline_s: float = 60.0", "cell_deadline_s: float = 4.0")
    place.cells_folder.mkdir(parents=True)
    (place.cells_folder / "hang").touch()
    with pytest.raises(CellsFailed, match="did not end within 4 s"):
        run(place, quick=True)
    for marker in place.cells_folder.rglob("pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(marker.read_text()), 0)


def test_an_interruption_ends_the_cells_by_their_ids(project: Path) -> None:
    place = locate("toy")
    place.cells_folder.mkdir(parents=True)
    (place.cells_folder / "hang").touch()

    def interrupt() -> None:
        deadline = time.monotonic() + WAIT_S
        while len(list(place.cells_folder.rglob("pid"))) < 2 and time.monotonic() < deadline:
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    # Tests that a shell runs in the background begin with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_study(RunRequest(place=place, quick=True), lambda _: None)
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join(WAIT_S)
    pids = [int(marker.read_text()) for marker in place.cells_folder.rglob("pid")]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_cell_whose_sources_changed_under_it_leaves_no_result(project: Path) -> None:
    place = locate("toy")
    folder = next(iter(cell_folders(place, load_study(place).cells([0], quick=True, rollouts=None)).values()))
    folder.write_spec()
    replace_in(
        place.folder / "study.py",
        "        marker = ",
        "        open(__file__, 'a').write('X = 1')\n        marker = ",
    )
    forget_studies()
    with pytest.raises(StudyError, match=r"experiments/toy/study\.py changed while the cell ran"):
        cells.carry_out(folder.path)
    assert folder.result() is None


def test_a_result_of_another_cell_in_a_cells_folder_is_refused(ran: StudyPlace) -> None:
    path = folders_of(ran)[0] / "cell.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "cell_digest": "0" * 16}))
    with pytest.raises(StudyError, match="another cell or another schema"):
        run(ran)
    path.write_text("{")
    with pytest.raises(StudyError, match="is damaged"):
        run(ran)


def test_one_process_runs_a_cell_at_a_time(project: Path) -> None:
    place = locate("toy")
    folder = next(iter(cell_folders(place, load_study(place).cells([0], quick=True, rollouts=None)).values()))
    folder.write_spec()
    with (
        cells._lock(folder.path),
        pytest.raises(StudyError, match=re.escape(f"being run by process {os.getpid()}")),
    ):
        cells.carry_out(folder.path)
    cells.carry_out(folder.path)
    assert folder.result() is not None


def test_studies_share_cells_by_content(ran: StudyPlace) -> None:
    borrowing = TOY.replace('"toy"', '"borrower"').replace(
        'config={"draws": draws, "shift": shift})', 'config={"draws": draws, "shift": shift}, owner="toy")'
    )
    assert borrowing.count("owner") == 1
    write_study(ran.root, "borrower", borrowing, [])
    results, said = run(ran.sibling("borrower"))
    assert "4 finished before, 0 to run" in said[0]
    assert results.figures == read_results(ran.results_path(quick=False)).figures


def test_a_cell_that_stands_twice_is_a_mistake(ran: StudyPlace) -> None:
    cell = Cell(arm="a", seed=0, config={})
    with pytest.raises(StudyError, match="twice"):
        cell_folders(ran, [cell, Cell(arm="a", seed=0, config={}, owner="toy")])


def test_an_unknown_study_is_the_users_mistake(project: Path) -> None:
    with pytest.raises(ConfigError, match="no study at"):
        locate("nothing")
