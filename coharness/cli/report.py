"""`coharness report RUN`: draw the report again from the run's files."""

import webbrowser
from pathlib import Path

import typer

from coharness.cli.exit_codes import ExitCode


def report(run: Path, *, open_browser: bool, tensorboard: bool) -> ExitCode:
    """Write the report of a run, and print its summary and where the files are."""
    from coharness.loop.run_dir import RunDir
    from coharness.report import metrics, terminal_summary, write_report

    RunDir.open(run)
    page = write_report(run)
    typer.echo(terminal_summary(run))
    typer.echo(f"\nreport  {page}\nmetrics {metrics.write(run)}")
    if tensorboard:
        from coharness.report.tensorboard import write_scalars

        scalars = write_scalars(run)
        if scalars is not None:
            typer.echo(f"scalars {scalars}")
    if open_browser:
        webbrowser.open(page.resolve().as_uri())
    return ExitCode.DONE
