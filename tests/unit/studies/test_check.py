import json
import shutil
from pathlib import Path

import pytest

from coharness.cli.main import main
from coharness.records.errors import ConfigError
from coharness.studies.bars import Bar, Bound, End, hold, read_bars
from coharness.studies.check import Staleness, check_study, staleness
from coharness.studies.contract import Figure, StudyError, Summary, Table
from coharness.studies.listing import StudyState, list_studies
from coharness.studies.place import StudyPlace
from coharness.studies.results import read_results, write_results
from tests.unit.studies.toy import commit, forget_studies, replace_in, write_study


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


def write_bars(place: StudyPlace, **changes: object) -> None:
    bar = {"figure": "gain", "above": 0, "on": "low", "source": "the toy"} | changes
    place.bars_path.write_text(json.dumps([{key: value for key, value in bar.items() if value is not None}]))
    commit(place.root)


def state_of(place: StudyPlace) -> StudyState:
    return next(entry.state for entry in list_studies(place.root) if entry.name == place.name)


def test_met_bars_end_well(ran: StudyPlace, capsys: pytest.CaptureFixture[str]) -> None:
    commit(ran.root)
    assert exit_code("study", "check", "experiments/toy") == 0
    assert capsys.readouterr().out.startswith("OK      low end of gain above 0: ")
    assert state_of(ran) is StudyState.MET


def test_a_missed_bar_is_named_with_its_value_and_ends_with_one(
    ran: StudyPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bars(ran, above=6, on="value")
    assert exit_code("study", "check", "experiments/toy") == 1
    assert capsys.readouterr().out.startswith("MISSED  gain above 6: ")
    assert state_of(ran) is StudyState.MISSED


def test_an_uncommitted_source_is_refused_and_written_results_are_none(ran: StudyPlace) -> None:
    replace_in(ran.folder / "results.json", "coharness study run", "coharness  study run")
    (ran.folder / "README.md").write_text("what came of it")
    check_study(ran)
    (ran.folder / "helper.py").write_text("X = 1\n")
    with pytest.raises(StudyError, match=r"uncommitted sources: experiments/toy/helper.py; commit"):
        check_study(ran)


def test_a_folder_without_git_cannot_be_checked(ran: StudyPlace) -> None:
    shutil.rmtree(ran.root / ".git")
    with pytest.raises(StudyError, match="no git checkout"):
        check_study(ran)


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("rng.normal(", "0.1 + rng.normal(", [Staleness.CODE]),
        ('("shifted", 5.0)', '("shifted", 4.0)', [Staleness.CODE, Staleness.CONFIG]),
    ],
)
def test_results_of_another_study_module_are_stale(ran: StudyPlace, old: str, new: str, stale: list[Staleness]) -> None:
    replace_in(ran.folder / "study.py", old, new)
    commit(ran.root)
    forget_studies()
    assert [reason.kind for reason in staleness(ran, read_results(ran.results_path(quick=False)))] == stale
    with pytest.raises(StudyError, match=r"stale: experiments/toy/study\.py changed since its cells ran"):
        check_study(ran)
    assert state_of(ran) is StudyState.STALE
    assert "experiments/toy/study.py" in list_studies(ran.root)[0].detail


def test_results_of_a_smoke_are_refused(ran: StudyPlace) -> None:
    full, quick = ran.results_path(quick=False), ran.results_path(quick=True)
    replace_in(full, '"quick": false', '"quick": true')
    with pytest.raises(StudyError, match=r"smoke \(--quick\)"):
        check_study(ran)
    full.rename(quick)
    with pytest.raises(StudyError, match="only those of a smoke"):
        check_study(ran)
    assert state_of(ran) is StudyState.QUICK_ONLY
    quick.unlink()
    with pytest.raises(StudyError, match=r"no results\.json: none; run `coharness study run experiments/toy`"):
        check_study(ran)
    assert state_of(ran) is StudyState.NEVER_RUN


def test_another_budget_or_fewer_seeds_are_said(ran: StudyPlace) -> None:
    path = ran.results_path(quick=False)
    results = json.loads(path.read_text())
    results["budget"] = {"draws": 7.0}
    path.write_text(json.dumps(results))
    assert check_study(ran).notes == ("the budget of these results is 7 draws, the study's own is 100 draws",)


def test_a_bar_asks_for_a_number_of_seeds(ran: StudyPlace) -> None:
    write_bars(ran, seeds=5)
    checked = check_study(ran)
    assert not checked.is_met
    assert "over 2 seeds, the bar asks for 5" in str(checked.verdicts[0])


@pytest.mark.parametrize(
    ("bound", "limits", "inside", "outside"),
    [
        (Bound.MIN, (1.0,), 1.0, 0.9),
        (Bound.MAX, (1.0,), 1.0, 1.1),
        (Bound.ABOVE, (1.0,), 1.1, 1.0),
        (Bound.BELOW, (1.0,), 0.9, 1.0),
        (Bound.RANGE, (1.0, 2.0), 2.0, 2.1),
    ],
)
def test_bounds_hold_as_they_read(bound: Bound, limits: tuple[float, ...], inside: float, outside: float) -> None:
    bar = Bar(figure="x", bound=bound, limits=limits, on=End.VALUE, source="here")
    assert bar.holds(inside)
    assert not bar.holds(outside)


def test_a_figure_that_is_missing_or_has_no_interval_misses_its_bar(ran: StudyPlace) -> None:
    results = read_results(ran.results_path(quick=False))
    absent = Bar(figure="other", bound=Bound.MIN, limits=(0.0,), on=End.VALUE, source="here")
    assert not hold(absent, results).is_met
    path = ran.folder / "other.json"
    figure = Figure(name="other", value=1.0, low=None, high=None, unit="", seeds=(0,))
    write_results(path, type(results)(**{**{f: getattr(results, f) for f in results.__slots__}, "figures": (figure,)}))
    low = Bar(figure="other", bound=Bound.MIN, limits=(0.0,), on=End.LOW, source="here")
    assert hold(absent, read_results(path)).is_met
    assert hold(low, read_results(path)).number is None
    assert not hold(low, read_results(path)).is_met


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"above": None}, "has 0 bounds"),
        ({"min": 1}, "has 2 bounds"),
        ({"above": "0"}, "expected a number"),
        ({"above": None, "range": [2, 1]}, "expected a number"),
        ({"on": "middle"}, "on is 'middle'"),
        ({"source": None}, "lacks source"),
        ({"seeds": 0}, "seeds is 0"),
        ({"bar": 1}, "unknown keys bar"),
    ],
)
def test_a_bar_that_is_none_names_its_entry(ran: StudyPlace, changes: dict[str, object], message: str) -> None:
    write_bars(ran, **changes)
    with pytest.raises(ConfigError, match=f"entry 1.*{message}"):
        read_bars(ran.bars_path)


def test_a_figure_that_is_no_number_is_never_written(ran: StudyPlace, tmp_path: Path) -> None:
    results = read_results(ran.results_path(quick=False))
    figure = Figure(name="broken", value=float("nan"), low=None, high=None, unit="", seeds=(0,))
    fields = {name: getattr(results, name) for name in results.__slots__}
    with pytest.raises(StudyError, match="figures broken are not finite"):
        write_results(tmp_path / "results.json", type(results)(**{**fields, "figures": (figure,)}))
    assert not (tmp_path / "results.json").exists()


def test_figures_and_rows_must_fit_their_summary() -> None:
    figure = Figure(name="x", value=1.0, low=None, high=None, unit="", seeds=(0,))
    with pytest.raises(ValueError, match="x stand twice"):
        Summary(figures=(figure, figure), tables=())
    with pytest.raises(ValueError, match="2 columns, got a row of 1"):
        Table(title="t", columns=("a", "b"), rows=((1,),))


def test_a_broken_study_does_not_hide_the_others(ran: StudyPlace, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(ran.root, "broken", "import no_such_package\n", [])
    assert [(entry.name, entry.state) for entry in list_studies(ran.root)] == [
        ("broken", StudyState.BROKEN),
        ("toy", StudyState.MET),
    ]
    assert exit_code("study", "list") == 0
    assert "no_such_package" in capsys.readouterr().out


def test_the_run_verb_prints_the_tables(ran: StudyPlace, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("study", "run", "toy") == 0
    out = capsys.readouterr().out
    assert "4 finished before, 0 to run" in out
    assert "**Gains**" in out
    assert "| gain" in out


def test_the_run_verb_says_which_cells_failed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = project / "runs" / "studies" / "toy"
    cells.mkdir(parents=True)
    (cells / "fail").touch()
    assert exit_code("study", "run", "toy", "--quick") == 4
    assert "told to fail" in capsys.readouterr().err
    assert exit_code("study", "run", "nothing") == 2
