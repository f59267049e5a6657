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
def merge(
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="What to write; must not exist yet.", show_default=False)
    ] = None,
    parents: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PARENT...", help=".safetensors files, model folders or PEFT adapter folders.", show_default=False
        ),
    ] = None,
    rule: Annotated[str, typer.Option("--rule", help="See --rules.")] = "task_arithmetic",
    weights: Annotated[str | None, typer.Option("--weights", help="Such as 0.5,0.3,0.2; equal if left out.")] = None,
    base: Annotated[Path | None, typer.Option("--base", help="What the parents were trained from.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the rule's; repeat it for more."),
    ] = None,
    statistics: Annotated[
        list[Path] | None, typer.Option("--statistics", help="A file a parent, for rules that need them.")
    ] = None,
    space: Annotated[str | None, typer.Option("--space", help="Adapters: product, core or dense.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Adapters: rank of the result.")] = None,
    tail_tolerance: Annotated[
        float | None,
        typer.Option("--tail-tolerance", help="Adapters: raise the rank while more than this share is cut off."),
    ] = None,
    max_rank: Annotated[int | None, typer.Option("--max-rank", help="Adapters: where that ends.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List all rules with their settings and leave.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all that needs no weights; write nothing.")] = False,
    json: Json = False,
) -> None:
    """Merge weights or adapters on disk, tensor by tensor, without holding a model in memory."""
    from coharness.cli import merge as verb

    if rules:
        raise typer.Exit(verb.rules(as_json=json))
    if out is None or not parents:
        raise typer.BadParameter("name OUT and at least one PARENT, or ask for --rules")
    raise typer.Exit(
        verb.merge(
            out,
            parents,
            rule=rule,
            weights=weights,
            base=base,
            settings=set_ or [],
            statistics=statistics or [],
            space=space,
            rank=rank,
            tail_tolerance=tail_tolerance,
            max_rank=max_rank,
            dry_run=dry_run,
            as_json=json,
        )
    )


@app.command()
def doctor(
    ray: Annotated[bool, typer.Option("--ray", help="Start a local Ray and compare its workers' code, too.")] = False,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Run the attempts at abuse in each sandbox layer.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this machine: packages against the pinned set, import origins, memory, disk, cores."""
    from coharness.cli import doctor as verb

    raise typer.Exit(verb.doctor(with_ray=ray, with_sandbox=sandbox, as_json=json))


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


@app.command()
def ablate(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="A YAML file, or experiments/NAME.", show_default=False)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and what it could detect; run nothing.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke with one seed; nothing is said of it.")] = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Seeds 0, 1, ...; the study's own number if left out.")
    ] = None,
    rollouts: Annotated[
        int | None, typer.Option("--rollouts", min=1, help="Budget of each arm; the study's own if left out.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Cells at once, a process each.")] = 2,
    ray: Annotated[
        bool, typer.Option("--ray", help="Run the cells as Ray actors; RAY_ADDRESS names a cluster, else a local one.")
    ] = False,
    json: Json = False,
) -> None:
    """Ablate a run: factors switched in and out under paired seeds, with controls, intervals and corrected tests."""
    from coharness.cli import ablate as verb

    if dry_run:
        raise typer.Exit(verb.dry_run(study, quick=quick, num_seeds=seeds, rollouts=rollouts))
    raise typer.Exit(
        verb.ablate(study, quick=quick, num_seeds=seeds, rollouts=rollouts, parallel=parallel, on_ray=ray, as_json=json)
    )


@app.command(context_settings=_FORWARD, add_help_option=False)
def tune(context: typer.Context) -> None:
    """Population-based search over a trainable of yours: CONFIG, or resume, replay, schedule, play."""
    from coharness.cli.tune import main as tune_main

    tune_main(context.args)


@app.command(context_settings=_FORWARD, add_help_option=False)
def judge(context: typer.Context) -> None:
    """Judge answers by a rubric: score, pair, rank, lint."""
    from coharness.cli.judge import app as group

    group(args=context.args, prog_name="coharness judge")


@app.command()
def serve(
    rubric: Annotated[Path, typer.Argument(metavar="RUBRIC", help="A rubric's YAML file.", show_default=False)],
    endpoint: Annotated[list[str], typer.Option("--endpoint", help="Base address of a model; may be given again.")],
    model: Annotated[str, typer.Option("--model", help="The model's name there.", show_default=False)],
    host: Annotated[str, typer.Option("--host", help="Address; others than loopback need --tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 for any free one.")] = 8750,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", help="JSON file of tokens; one for this terminal where left out.")
    ] = None,
    canaries: Annotated[
        Path | None, typer.Option("--canaries", help="YAML file of known items; another rubric must pass them.")
    ] = None,
    key_env: Annotated[str | None, typer.Option("--key-env", help="Variable that holds the endpoint's key.")] = None,
    cache: Annotated[Path | None, typer.Option("--cache", help="File that keeps judgments.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Calls in flight.")] = 16,
    max_calls: Annotated[int, typer.Option("--max-calls", min=0, help="Paid calls at most.")] = 1_000_000,
) -> None:
    """Serve a judge over HTTP: scores, pairs, rankings; with a token, on loopback."""
    from coharness.cli import serve as verb
    from coharness.config.reward import JudgeSection

    section = JudgeSection(
        endpoints=tuple(endpoint),
        model=model,
        rubric=str(rubric),
        api_key_env=key_env,
        concurrency=concurrency,
        max_calls=max_calls,
    )
    raise typer.Exit(verb.serve(section, host=host, port=port, tokens=tokens, canaries=canaries, cache=cache))


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
