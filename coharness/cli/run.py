"""`coharness run CONFIG`: check everything first, then create the run's folder and carry the run out."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from coharness.cli.display import Progress
from coharness.cli.exit_codes import ExitCode
from coharness.config.load import dump_config, load_config


def run(config_path: Path, overrides: Sequence[str], *, as_json: bool, progress: Progress) -> ExitCode:
    """Run a config to its report.

    Raises:
        ConfigError: the config is wrong, or its run folder exists already.
        PreflightError: the config is fine, but something it needs is missing or wrong here; nothing was started.
    """
    config = load_config(config_path, overrides)

    from coharness.cli.session import drive
    from coharness.loop.preflight import PreflightReport, preflight
    from coharness.loop.run_dir import RunDir

    checked = preflight(config)
    checked.raise_if_failed()
    if config.evaluation.probe_tasks:
        from coharness.loop.probe import probe_families

        typer.echo(f"probing the base on {config.evaluation.probe_tasks} tasks of each family", err=True)
        probed = PreflightReport(findings=probe_families(config))
        for finding in probed.findings:
            typer.echo(f"{finding.level}: {finding.what}: {finding.message}", err=True)
        probed.raise_if_failed()
    for finding in checked.findings:
        if finding.level != "info":
            typer.echo(f"{finding.level}: {finding.what}: {finding.message}", err=True)
    run_dir = RunDir.create(config)
    return drive(run_dir, _short(Path(config.run_dir)), resume=False, as_json=as_json, progress=progress)


def dry_run(config_path: Path, overrides: Sequence[str], *, as_json: bool) -> ExitCode:
    """Print the resolved config, what it would run, and what the preflight finds; touches nothing.

    Raises:
        ConfigError: the config is wrong.
    """
    config = load_config(config_path, overrides)

    from coharness.cli.plan import plan_lines, plan_of
    from coharness.loop.preflight import preflight
    from coharness.tasks.sources import build_sources

    plan = plan_of(config, build_sources(config.tasks, Path.cwd()))
    findings = preflight(config).findings
    failed = any(finding.level == "error" for finding in findings)
    if as_json:
        told = {
            "config": config.model_dump(mode="json"),
            "plan": asdict(plan),
            "findings": [asdict(finding) for finding in findings],
        }
        typer.echo(json.dumps(told, ensure_ascii=False, default=str))
    else:
        typer.echo(dump_config(config))
        typer.echo("\n".join(plan_lines(plan, config)))
        for finding in findings:
            typer.echo(f"{finding.level}: {finding.what}: {finding.message}")
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE


def _short(path: Path) -> Path:
    """The path from the working directory, where it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path
