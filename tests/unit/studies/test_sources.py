"""What counts as a source of a result."""

import ast
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coharness.studies import cells
from coharness.studies.check import Stale, Staleness, check_study, staleness
from coharness.studies.contract import Cell, StudyError
from coharness.studies.place import StudyPlace, load_study, locate
from coharness.studies.results import read_results
from coharness.studies.runner import cell_folders, shared_sources
from coharness.studies.sources import RUNS_CELLS, SUMS_UP, Tree, code_digest
from tests.arch.source import ROOT, modules
from tests.unit.studies.conftest import entered
from tests.unit.studies.toy import TOY, commit, forget_studies, git, replace_in, run, write_study

# A project -----------------------------------------------------------------------------------------------------------

MATHS = '"""What the cells compute with."""\n\nSHIFT = 0.0  # nothing\n'
SUMMARY = '"""What the cells say together."""\n\nFACTOR = 1.0\n'


@pytest.fixture(scope="module")
def split_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy after a full run, in three modules: cells compute with `maths`, figures with `summary`, nobody with `other`."""
    text = TOY.replace("import numpy as np\n", "import numpy as np\n\nfrom experiments.toy.summary import FACTOR\n", 1)
    text = text.replace("        rng = np", "        from experiments.toy.maths import SHIFT\n\n        rng = np", 1)
    text = text.replace("cell_deadline_s: float = 60.0", "cell_deadline_s: float = 600.0")
    text = text.replace('"mean": float(rng', '"mean": SHIFT + float(rng')
    text = text.replace("= float(np.mean(", "= FACTOR * float(np.mean(")
    root = tmp_path_factory.mktemp("split") / "project"
    write_study(root, "toy", text, [{"figure": "gain", "above": 0, "on": "value", "source": "the toy"}])
    folder = root / "experiments" / "toy"
    (folder / "maths.py").write_text(MATHS)
    (folder / "summary.py").write_text(SUMMARY)
    (folder / "other.py").write_text("VALUE = 1\n")
    (root / ".gitignore").write_text("/runs/\n__pycache__/\n*.svg\n")
    git(root, "init", "-q")
    commit(root)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for _ in entered(root, monkeypatch):
            run(locate("toy"), num_seeds=1)
    return root


@pytest.fixture
def split(split_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StudyPlace]:
    """A copy of it to work on."""
    root = tmp_path / "project"
    shutil.copytree(split_template, root)
    for entered_root in entered(root, monkeypatch):
        yield locate("toy", entered_root)


def stale(place: StudyPlace) -> list[Stale]:
    return list(staleness(place, read_results(place.results_path(quick=False))))


def num_finished(place: StudyPlace) -> int:
    found = load_study(place).cells([0], quick=False, rollouts=None)
    return sum(folder.result() is not None for folder in cell_folders(place, found).values())


def test_results_record_what_the_cells_imported_and_what_summed_them_up(split: StudyPlace) -> None:
    results = read_results(split.results_path(quick=False))
    assert {"experiments/toy/study.py", "experiments/toy/maths.py"} <= set(results.sources)
    assert not {"experiments/toy/other.py", "experiments/toy/summary.py"} & set(results.sources)
    assert not [name for name in results.sources if name.startswith(("coharness/cli/", "coharness/loop/"))]
    assert not (RUNS_CELLS | SUMS_UP) & set(results.sources)
    assert {"experiments/toy/summary.py", "coharness/studies/contract.py"} <= set(results.summary_sources)
    assert "coharness/stats/paired.py" not in results.sources
    assert not set(results.sources) & set(results.summary_sources)
    assert stale(split) == []


def test_comments_and_docstrings_keep_cells_and_results(split: StudyPlace) -> None:
    replace_in(split.folder / "maths.py", "# nothing", "# nothing at all")
    replace_in(split.folder / "study.py", '"""A toy', '"""The toy')
    replace_in(split.folder / "summary.py", "say together", "say")
    commit(split.root)
    assert stale(split) == []
    assert check_study(split).is_met
    _, said = run(split, num_seeds=1)
    assert said == ["toy: 2 cells, 2 finished before, 0 to run"]


def test_a_constant_of_an_imported_module_drops_the_cells_and_is_named(split: StudyPlace) -> None:
    replace_in(split.folder / "maths.py", "0.0", "0.5")
    commit(split.root)
    assert stale(split) == [Stale(kind=Staleness.CODE, files=("experiments/toy/maths.py",))]
    with pytest.raises(StudyError, match=r"stale: experiments/toy/maths\.py changed since its cells ran; run"):
        check_study(split)
    assert num_finished(split) == 0
    replace_in(split.folder / "maths.py", "0.5", "0.0")
    forget_studies()
    assert num_finished(split) == 2


def test_a_file_that_is_gone_drops_the_cells(split: StudyPlace) -> None:
    (split.folder / "maths.py").unlink()
    assert stale(split) == [Stale(kind=Staleness.CODE, files=("experiments/toy/maths.py",))]
    assert num_finished(split) == 0


def test_a_module_that_no_cell_imported_drops_nothing(split: StudyPlace) -> None:
    replace_in(split.folder / "other.py", "1", "2")
    commit(split.root)
    assert stale(split) == []
    assert num_finished(split) == 2


def test_another_summary_makes_figures_stale_and_no_cell(split: StudyPlace) -> None:
    replace_in(split.folder / "summary.py", "1.0", "2.0")
    commit(split.root)
    assert stale(split) == [Stale(kind=Staleness.SUMMARY, files=("experiments/toy/summary.py",))]
    with pytest.raises(StudyError, match=r"summary\.py changed since it was summed up; .* its cells will be reused"):
        check_study(split)
    before = read_results(split.results_path(quick=False)).figures[0].value
    forget_studies()
    results, said = run(split, num_seeds=1)
    assert said == ["toy: 2 cells, 2 finished before, 0 to run"]
    assert results.figures[0].value == pytest.approx(2 * before)


def test_half_written_cells_ask_for_the_same_bytes_of_all_that_could_run(split: StudyPlace) -> None:
    first = Tree(split.root)
    first.read_all()

    def code() -> str:
        tree = Tree(split.root)
        # The packages as they were: somebody may be working on them.
        tree._data = {name: data for name, data in first._data.items() if not name.startswith("experiments/")}
        return code_digest(split, tree)

    before = code_digest(split, first)
    replace_in(split.folder / "summary.py", "1.0", "2.0")
    assert code() == before
    replace_in(split.folder / "maths.py", "# nothing", "# other")
    assert code() != before


def test_a_result_that_no_longer_holds_is_not_gone_on_from(split: StudyPlace) -> None:
    found = load_study(split).cells([0], quick=False, rollouts=None)
    folder = next(iter(cell_folders(split, found).values()))
    replace_in(folder.path / "cell.json", '"experiments/toy/maths.py": "', '"experiments/toy/maths.py": "0')
    assert folder.result() is None
    cells.carry_out(folder.path)
    assert (folder.path / "runs.txt").read_text() == "x"
    assert folder.result() is not None


def test_a_cell_that_other_code_has_half_written_is_begun_anew(tmp_path: Path) -> None:
    def write(name: str) -> None:
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "journal").touch()
        (tmp_path / name).touch()

    def names() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    write("spec.json")
    cells._begin(tmp_path, "this code")
    assert names() == {"spec.json", "begun.txt"}
    write("log.txt")
    cells._begin(tmp_path, "this code")
    assert names() == {"spec.json", "begun.txt", "log.txt", "run"}
    cells._begin(tmp_path, "other code")
    assert names() == {"spec.json", "begun.txt", "log.txt"}
    write("cell.json")
    cells._begin(tmp_path, "other code")
    assert names() == {"spec.json", "begun.txt", "log.txt"}


def test_cells_of_two_versions_of_one_file_are_never_mixed() -> None:
    a, b = (Cell(arm=arm, seed=0, config={}) for arm in "ab")
    first = cells.Finished(result={}, sources={"x.py": "1", "y.py": "1"})
    agreeing = cells.Finished(result={}, sources={"x.py": "1", "z.py": "1"})
    assert shared_sources({a: first, b: agreeing}) == {"x.py": "1", "y.py": "1", "z.py": "1"}
    with pytest.raises(StudyError, match=r"a, seed 0 and b, seed 0 are of two versions of x\.py"):
        shared_sources({a: first, b: replace(agreeing, sources={"x.py": "2"})})


def test_older_results_are_refused_and_say_what_they_lack(split: StudyPlace) -> None:
    path = split.results_path(quick=False)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 1}))
    with pytest.raises(StudyError, match="schema 1, this code reads 2, which says which source files"):
        read_results(path)


def test_a_cell_that_starts_processes_depends_on_all_that_they_could_import(project: Path) -> None:
    place = locate("toy")
    replace_in(
        place.folder / "study.py",
        "        rng = np",
        "        import subprocess, sys\n\n        subprocess.run([sys.executable, '-c', 'pass'], check=True)\n        rng = np",
    )
    (place.folder / "child.py").write_text("VALUE = 1\n")
    run(place, quick=True)
    sources = read_results(place.results_path(quick=True)).sources
    every = {path for path in modules() if not path.startswith("experiments/")}
    assert set(sources) >= every - RUNS_CELLS - SUMS_UP
    assert "experiments/toy/child.py" in sources
    replace_in(place.folder / "child.py", "1", "2")
    forget_studies()
    found = load_study(place).cells([0], quick=True, rollouts=None)
    assert all(folder.result() is None for folder in cell_folders(place, found).values())


# This repository -----------------------------------------------------------------------------------------------------


def test_no_cell_runs_with_what_its_study_keeps_in_its_summary() -> None:
    found = 0
    for path, tree in modules().items():
        if not (path.startswith("experiments/") and path.endswith("/study.py")):
            continue
        taken = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".summary")
            for alias in node.names
        }
        found += bool(taken)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "run_cell":
                used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                assert not used & taken, (
                    f"{path}: run_cell uses {used & taken} of summary.py, which counts as no source"
                )
    assert found


def test_all_that_is_left_out_is_there() -> None:
    tree = Tree(ROOT)
    assert all(tree.data(name) is not None for name in RUNS_CELLS | SUMS_UP)
