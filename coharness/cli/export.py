"""`coharness export RUN DIR`: a member as a folder that other tools load as it is."""

from pathlib import Path

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.records.errors import ConfigError


def export(run: Path, folder: Path, *, member: str) -> ExitCode:
    """Copy the weights, tokenizer and harness of `member` into `folder`.

    Raises:
        ConfigError: the folder exists already, or the run has no such member.
    """
    from coharness.loop.export import export as export_member
    from coharness.loop.run_dir import RunDir

    if folder.exists():
        raise ConfigError(f"{folder} exists already; name a new folder, so that nothing is overwritten")
    RunDir.open(run)
    facts = export_member(run, member, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    typer.echo(f"{facts['serving']} of {facts['run']} ({facts['kind']} weights, base {facts['base']}) is in {folder}:")
    for path in files:
        typer.echo(f"  {path.relative_to(folder)}  {path.stat().st_size:,} bytes")
    return ExitCode.DONE
