"""`coharness replay RUN`: decide everything again from the journal and compare."""

import json
from dataclasses import asdict
from pathlib import Path

import typer

from coharness.cli.exit_codes import ExitCode


def replay(run: Path, *, as_json: bool) -> ExitCode:
    """Replay a run and print what was compared.

    Raises:
        ReplayMismatch: a decision differs from the recorded one; the message names the first.
    """
    from coharness.loop.replay import replay_run
    from coharness.loop.run_dir import RunDir

    RunDir.open(run)
    found = replay_run(run)
    if as_json:
        typer.echo(json.dumps(asdict(found), default=str))
    else:
        typer.echo(
            f"{run}: {found.num_events:,} events and {found.num_decisions:,} decisions, all the same, in {found.wall_s:.1f} s\n"
            f"  state {found.state_digest}, {_recorded(found.recorded_digest)}"
        )
        if not found.same_code:
            typer.echo("  the run was made by other code than this, which decides the same")
    return ExitCode.DONE


def _recorded(digest: str | None) -> str:
    return "which the run noted, too" if digest else "and the run noted none at its end"
