"""`coharness status RUN`: how a run stands, from its files alone, so that it works beside a live run and after a crash."""

import json
from pathlib import Path

import typer

from coharness.cli.display import Snapshot, clock_text, facts
from coharness.cli.exit_codes import ExitCode


def status(run: Path, *, as_json: bool) -> ExitCode:
    """Print the snapshot of a run: a few lines, or the whole mapping as JSON."""
    from coharness.loop.run_dir import RunDir
    from coharness.loop.status import status_from_journal

    RunDir.open(run)
    found = status_from_journal(run)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, default=str))
        return ExitCode.DONE
    snapshot = Snapshot.of(found)
    lines = [
        f"{run}: {snapshot.phase} after {clock_text(snapshot.elapsed_s)}",
        f"  {'rollouts':<22}{snapshot.rollouts:,} of {snapshot.budget:,} ({snapshot.share:.0%})",
        *(f"  {name:<22}{value}" for name, value in facts(snapshot)),
    ]
    if snapshot.last_event:
        lines.append(f"  {'last':<22}{snapshot.last_event}")
    typer.echo("\n".join(lines))
    return ExitCode.DONE
