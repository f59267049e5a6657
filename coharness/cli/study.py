"""`coharness study`: run a study, hold its results against its bars, list all studies.

`cell` is what `run` starts for each cell; it is no verb for people.
"""

import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from coharness.cli.exit_codes import ExitCode

app = typer.Typer(
    name="study",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run the studies under experiments/, hold their results against their bars, list them.",
    epilog="Exit codes of check: 0 all bars met, 1 one is missed or the results cannot be compared. Of run: 4 a cell failed, "
    "130 interrupted; the same command goes on.",
)
Place = Annotated[Path, typer.Argument(metavar="STUDY", help="experiments/NAME, or NAME.", show_default=False)]


@app.command()
def run(
    study: Place,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke of 20 s at most; no bar is held against it.")] = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Seeds 0, 1, ...; the study's own number if left out.")
    ] = None,
    rollouts: Annotated[
        int | None, typer.Option("--rollouts", min=1, help="Budget of each arm; the study's own if left out.")
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, help="Cells at once, a process of one thread each.")
    ] = 2,
) -> None:
    """Run all cells that are not finished, write results.json, print its tables."""
    from coharness.studies.place import locate
    from coharness.studies.runner import CellsFailed, RunRequest, run_study
    from coharness.studies.table import results_text

    request = RunRequest(place=locate(study), quick=quick, num_seeds=seeds, rollouts=rollouts, parallel=parallel)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's end is a Ctrl-C: cells are ended in order
    try:
        results = run_study(request, say=typer.echo)
    except CellsFailed as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(ExitCode.CHECK_FAILED) from error
    except KeyboardInterrupt as error:
        typer.echo(f"interrupted; finished cells are kept. Go on with: {request.command}", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    typer.echo(results_text(results))
    typer.echo(f"\nresults {request.place.results_path(quick=quick)}")


@app.command()
def check(study: Place) -> None:
    """Hold results.json against bars.json."""
    from coharness.studies.check import check_study
    from coharness.studies.place import locate

    checked = check_study(locate(study))
    for line in (*checked.notes, *map(str, checked.verdicts)):
        typer.echo(line)
    if not checked.is_met:
        raise typer.Exit(ExitCode.FAILED)


@app.command("list")
def list_(
    coverage: Annotated[
        bool,
        typer.Option("--coverage", help="Also what the studies' runs have exercised, and how often; zero included."),
    ] = False,
) -> None:
    """Show all studies with their state."""
    from coharness.studies.listing import list_studies, listing_table
    from coharness.studies.table import table_text

    typer.echo(table_text(listing_table(list_studies(Path.cwd()))))
    if coverage:
        from coharness.studies.coverage import coverage as count_all
        from coharness.studies.coverage import coverage_table

        typer.echo("\n" + table_text(coverage_table(count_all(Path.cwd()))))


@app.command(hidden=True)
def cell(folder: Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False)]) -> None:
    """Run one cell in this process; `run` starts it."""
    from coharness.studies.cells import carry_out

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    carry_out(folder)
