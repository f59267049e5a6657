"""`coharness ablate`: what an ablation can detect, its cells, its tables as a page and as CSV."""

import csv
import io
import json
import signal
from dataclasses import asdict
from pathlib import Path

import typer

from coharness.cli.ablate_page import render
from coharness.cli.compose import cell_launch
from coharness.cli.exit_codes import ExitCode
from coharness.records.errors import ConfigError
from coharness.studies.ablation_study import PlannedStudy, place_of
from coharness.studies.ablation_summary import ARMS_TITLE, CONTRASTS_TITLE, before_text, spread_of
from coharness.studies.contract import Table
from coharness.studies.place import Place, PlanPlace, load_study, locate
from coharness.studies.results import Results, write_whole
from coharness.studies.runner import CellsFailed, RunRequest, cell_folders, run_study
from coharness.studies.table import results_text

CSV_FILES = {ARMS_TITLE: "arms.csv", CONTRASTS_TITLE: "contrasts.csv"}


def dry_run(study: Path, *, quick: bool, num_seeds: int | None, rollouts: int | None) -> ExitCode:
    """Say what would run and what it could detect."""
    place = _place(study)
    planned = _planned(place)
    for line in _before(place, planned, quick, num_seeds, rollouts):
        typer.echo(line)
    for arm in planned.plan.arms:
        typer.echo(f"  {arm.name}: {' '.join(arm.overrides) or '(as the base)'}")
    return ExitCode.DONE


def ablate(
    study: Path,
    *,
    quick: bool,
    num_seeds: int | None,
    rollouts: int | None,
    parallel: int,
    on_ray: bool,
    as_json: bool,
) -> ExitCode:
    """Run what is not finished yet, and write results.json, ablation.html and the CSV files."""
    place = _place(study)
    planned = _planned(place)
    folder = _output(place, quick=quick)
    folder.mkdir(parents=True, exist_ok=True)
    for line in _before(place, planned, quick, num_seeds, rollouts):
        typer.echo(line, err=True)
    request = RunRequest(place=place, quick=quick, num_seeds=num_seeds, rollouts=rollouts, parallel=parallel)
    # A scheduler's end is a Ctrl-C: cells are ended in order.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with cell_launch(parallel, on_ray=on_ray) as launch:
            results = run_study(request, say=lambda line: typer.echo(line, err=True), launch=launch)
    except CellsFailed as error:
        typer.echo(f"error: {error}", err=True)
        return ExitCode.CHECK_FAILED
    except KeyboardInterrupt:
        typer.echo("interrupted; finished cells are kept, and the same command goes on", err=True)
        return ExitCode.INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    written = _write(folder, results, planned.question)
    if as_json:
        typer.echo(json.dumps({**asdict(results), "files": [str(path) for path in written]}, ensure_ascii=False))
    else:
        typer.echo(results_text(results))
    for path in (place.results_path(quick=quick), *written):
        typer.echo(f"wrote {path}", err=True)
    return ExitCode.DONE


def _place(study: Path) -> Place:
    """Where a study is; a YAML file that belongs to a study under experiments/ means that study, whose cells are shared."""
    if study.suffix in (".yaml", ".yml"):
        return locate(study.absolute().parent) if study.with_name("study.py").is_file() else place_of(study)
    return locate(study)


def _planned(place: Place) -> PlannedStudy:
    study = load_study(place)
    if not isinstance(study, PlannedStudy):
        raise ConfigError(f"{place} plans no contrasts; run it with: coharness study run {place}")
    return study


def _before(place: Place, study: PlannedStudy, quick: bool, num_seeds: int | None, rollouts: int | None) -> list[str]:
    num = num_seeds or (1 if quick else study.num_seeds)
    cells = study.cells(range(num), quick=quick, rollouts=rollouts)
    finished = {cell: result for cell, folder in cell_folders(place, cells).items() if (result := folder.result())}
    known = spread_of(study.plan, study.readings(finished).scores) if finished else None
    lines = before_text(
        study.plan,
        study.certainty,
        num_arms=len(cells) // (num * study.num_blocks),
        num_seeds=num,
        num_blocks=study.num_blocks,
        sd=known,
    )
    budget = ", ".join(f"{v:,.0f} {k}" for k, v in study.budget(quick=quick, rollouts=rollouts).items())
    return [
        f"{study.name}: {study.question}",
        f"{budget} an arm; {len(finished)} of {len(cells)} cells are finished",
        *lines,
    ]


def _output(place: Place, *, quick: bool) -> Path:
    folder = place.folder if isinstance(place, PlanPlace) else place.root / "runs" / "ablations" / place.name
    return folder / "quick" if quick else folder


def _write(folder: Path, results: Results, question: str) -> list[Path]:
    written = [folder / "ablation.html"]
    write_whole(written[0], render(results, question))
    for table in results.tables:
        if table.title in CSV_FILES:
            written.append(folder / CSV_FILES[table.title])
            write_whole(written[-1], csv_text(table))
    return written


def csv_text(table: Table) -> str:
    """A table as CSV (RFC 4180); numbers in full, nothing where there is no value."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    writer.writerows(["" if value is None else value for value in row] for row in table.rows)
    return text.getvalue()
