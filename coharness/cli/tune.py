"""`coharness tune`: population-based search over a trainable of yours.

`coharness tune CONFIG` runs a search; the other words after `tune` go on with one, check one, or take a schedule out of one.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.cli.stopping import StopSwitch
from coharness.config.yaml_text import write_mapping

if TYPE_CHECKING:
    from coharness.tune.config import TuneConfig
    from coharness.tune.files import SearchDir
    from coharness.tune.state import SearchState

SAY_S = 5.0
"""Seconds between two lines of progress."""
app = typer.Typer(
    name="tune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Population-based search over a trainable of yours: a class with step, save and load, or a Ray Tune Trainable.",
    epilog="`coharness tune CONFIG` is short for `coharness tune run CONFIG`. Exit codes: 0 done, 2 bad config, "
    "3 minutes spent before the steps, 4 a check failed, 130 interrupted and resumable.",
)
Search = Annotated[Path, typer.Argument(metavar="SEARCH", help="A search's folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Changes to the config: members=16 or --members 16.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved config; touch nothing.")] = False,
    json: Json = False,
) -> None:
    """Run a search; ends with the best member."""
    from coharness.tune.config import dump_tune_config, load_tune_config
    from coharness.tune.files import SearchDir
    from coharness.tune.trainable import resolve

    settings = load_tune_config(config, overrides or [])
    resolve(settings.trainable)
    if dry_run:
        typer.echo(settings.model_dump_json(indent=1) if json else dump_tune_config(settings), nl=json)
        return
    raise typer.Exit(_drive(SearchDir.create(settings.run_dir, dump_tune_config(settings)), settings, as_json=json))


@app.command()
def resume(search: Search, json: Json = False) -> None:
    """Go on with a search that was interrupted or killed."""
    folder, config = _opened(search)
    raise typer.Exit(_drive(folder, config, as_json=json))


@app.command()
def replay(search: Search) -> None:
    """Decide everything again from the journal; fails at the first difference."""
    from coharness.tune.core import Context
    from coharness.tune.replay import replay as decide_again

    folder, config = _opened(search)
    done = decide_again(folder, Context.of(config))
    typer.echo(f"{done.num_decisions} decisions on {done.num_reports} reports: all as recorded")


@app.command()
def schedule(
    search: Search,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; a JSON file.", show_default=False)],
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", help="`best`, or a checkpoint such as p3-12 (members are listed in result.json)."),
    ] = "best",
) -> None:
    """Write a member's path through clones and merges as one clean run."""
    from coharness.tune.core import Context, best_member
    from coharness.tune.engine import fold_journal
    from coharness.tune.schedule import schedule_of, write_schedule

    folder, config = _opened(search)
    state = fold_journal(folder, Context.of(config))
    best = best_member(state)
    wanted = best[0] if checkpoint == "best" and best is not None else checkpoint
    found = schedule_of(state, config, wanted)
    write_schedule(out, found)
    typer.echo(f"{out}: {len(found.stretches)} segments, {found.num_steps} steps, to {wanted}")


@app.command()
def play(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A schedule.", show_default=False)],
    seed: Annotated[
        int | None, typer.Option("--seed", help="Other random numbers than the search's; then nothing is compared.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, help="Relative difference that counts as equal.")
    ] = 0.0,
) -> None:
    """Make a schedule's run again, cleanly, and check that its numbers are the recorded ones."""
    from coharness.tune.schedule import play as play_again
    from coharness.tune.schedule import read_schedule

    played = play_again(read_schedule(file), seed=seed, tolerance=tolerance)
    typer.echo(", ".join(f"{name} {value:.6g}" for name, value in sorted(played.metrics.items())))
    if seed is None and played.difference:
        typer.echo(f"error: {played.difference}", err=True)
        raise typer.Exit(ExitCode.CHECK_FAILED)
    typer.echo(f"{played.num_steps} steps" + ("" if seed is not None else ": every segment as recorded"))


def main(words: Sequence[str]) -> None:
    """Carry out the words after `coharness tune`; a first word that is no command is a config."""
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    first = words[0] if words else "--help"
    app(args=list(words) if first in commands or first == "--help" else ["run", *words], prog_name="coharness tune")


def _opened(path: Path) -> "tuple[SearchDir, TuneConfig]":
    from coharness.tune.config import load_tune_config
    from coharness.tune.files import SearchDir

    folder = SearchDir.open(path)
    return folder, load_tune_config(folder.config_path)


def _drive(folder: "SearchDir", config: "TuneConfig", *, as_json: bool) -> ExitCode:
    from coharness.cli.compose import search_pool
    from coharness.tune.api import drive
    from coharness.tune.engine import SearchEnd

    said = [time.monotonic()]

    def say(state: "SearchState") -> None:
        if time.monotonic() - said[0] >= SAY_S:
            said[0] = time.monotonic()
            typer.echo(_line(state, config), err=True)

    with StopSwitch() as switch, search_pool(config) as make_pool:
        end, result = drive(
            folder, config, make_pool=make_pool, on_event=say, should_stop=lambda: switch.wanted is not None
        )
    typer.echo(
        json.dumps({"end": end.value, **result}, ensure_ascii=False) if as_json else _summary(result), nl=as_json
    )
    match end:
        case SearchEnd.DONE:
            typer.echo(f"result {folder.result_path}", err=True)
            return ExitCode.DONE
        case SearchEnd.TIME:
            typer.echo(f"the minutes were spent; go on with: coharness tune resume {folder.path}", err=True)
            return ExitCode.BUDGET_SPENT
        case SearchEnd.STOPPED:
            typer.echo(f"interrupted; go on with: coharness tune resume {folder.path}", err=True)
            return ExitCode.INTERRUPTED


def _line(state: "SearchState", config: "TuneConfig") -> str:
    best = "–" if state.best is None else f"{config.sign * state.best[0]:.5g}"
    done = f"steps {state.num_steps}/{config.budget.steps * config.members}"
    return f"{done}, best {config.score.metric} {best}, {state.num_copies} copies, {state.num_failures} failures"


def _summary(result: "dict[str, Any]") -> str:
    return write_mapping(
        {key: result[key] for key in ("why", "best", "steps", "reports", "copies", "failures", "founders", "diversity")}
    )
