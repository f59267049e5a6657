"""The verbs and their options. Each loads its module when it is used; nothing here imports torch, ray or pyarrow.

Errors that coharness raises on purpose become one message on standard error and an exit code (`exit_codes`); a traceback
is shown with `--debug`, which may stand anywhere on the line. Anything else is a mistake of ours and keeps its traceback.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coharness.cli.display import Progress
from coharness.cli.exit_codes import code_of
from coharness.records.errors import CoharnessError

_FORWARD = {"ignore_unknown_options": True, "allow_extra_args": True}

app = typer.Typer(
    name="coharness",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Co-evolve policies and the harnesses they work in, asynchronously, and say what is known and what is not.",
    epilog="Exit codes: 0 done, 2 bad config, 3 minutes spent before the rollouts, 4 a check failed, "
    "130 interrupted and resumable.",
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Shown = Annotated[Progress, typer.Option("--progress", help="How progress is shown.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from coharness import __version__

        typer.echo(__version__)
        raise typer.Exit(0)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an error; may stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all verbs; `--debug` itself is read by `main`."""


@app.command(context_settings=_FORWARD)
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Changes to the config: population.num_policies=4 or --population.num-policies 4.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run; touch nothing.")] = False,
    json: Json = False,
    progress: Shown = Progress.AUTO,
) -> None:
    """Run a config; ends with the sealed report."""
    from coharness.cli import run as verb

    if dry_run:
        raise typer.Exit(verb.dry_run(config, overrides or [], as_json=json))
    raise typer.Exit(verb.run(config, overrides or [], as_json=json, progress=progress))


@app.command()
def resume(run: Run, json: Json = False, progress: Shown = Progress.AUTO) -> None:
    """Go on with a run that was interrupted or killed."""
    from coharness.cli import resume as verb

    raise typer.Exit(verb.resume(run, as_json=json, progress=progress))


@app.command()
def status(run: Run, json: Json = False) -> None:
    """Say how a run stands, from its files alone."""
    from coharness.cli import status as verb

    raise typer.Exit(verb.status(run, as_json=json))


@app.command()
def watch(run: Run, progress: Shown = Progress.AUTO) -> None:
    """Follow a run, from its files alone, until it ends or you leave; the run does not notice."""
    from coharness.cli import watch as verb

    raise typer.Exit(verb.watch(run, progress=progress))


@app.command()
def report(
    run: Run,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser as well.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard scalars as well.")] = False,
) -> None:
    """Write report.html and metrics.jsonl, and print the summary."""
    from coharness.cli import report as verb

    raise typer.Exit(verb.report(run, open_browser=open_, tensorboard=tensorboard))


@app.command()
def replay(run: Run, json: Json = False) -> None:
    """Decide everything again from the journal; fails at the first difference."""
    from coharness.cli import replay as verb

    raise typer.Exit(verb.replay(run, as_json=json))


@app.command()
def export(
    run: Run,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; must not exist yet.", show_default=False)],
    member: Annotated[str, typer.Option("--member", help="`champion`, or a policy such as p2.")] = "champion",
) -> None:
    """Copy a member's weights, tokenizer and harness, as transformers, PEFT and vLLM load them."""
    from coharness.cli import export as verb

    raise typer.Exit(verb.export(run, folder, member=member))


@app.command()
def show(
    run: Run,
    what: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="member, harness, proposal or episode; an overview where left out."),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="ID", help="Which one; a list where left out.")] = None,
    json: Json = False,
) -> None:
    """Show a run's members, harnesses, proposals, or single episodes."""
    from coharness.cli import show as verb

    raise typer.Exit(verb.show(run, what, name, as_json=json))


@app.command()
def doctor(
    ray: Annotated[bool, typer.Option("--ray", help="Start a local Ray and compare its workers' code, too.")] = False,
    json: Json = False,
) -> None:
    """Check this machine: packages against the pinned set, import origins, memory, disk, cores."""
    from coharness.cli import doctor as verb

    raise typer.Exit(verb.doctor(with_ray=ray, as_json=json))


@app.command(context_settings=_FORWARD, add_help_option=False)
def base(context: typer.Context) -> None:
    """Bases that policies start from: build, fetch, show."""
    from coharness.cli.base import app as group

    group(args=context.args, prog_name="coharness base")


@app.command(context_settings=_FORWARD, add_help_option=False)
def study(context: typer.Context) -> None:
    """Studies under experiments/: run, check, list."""
    from coharness.cli.study import app as group

    group(args=context.args, prog_name="coharness study")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line (the process's own where left out); always ends in SystemExit with an `ExitCode`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    # transformers' own bars would be drawn over ours; whoever wants them sets the variable to 0.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        app(args=[word for word in words if word != "--debug"], prog_name="coharness")
    except CoharnessError as error:
        if debug:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(code_of(error))
