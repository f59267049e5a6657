"""`coharness merge OUT PARENT...`: weights or adapters on disk into one, by a rule of the table."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.records.errors import ConfigError


def merge(
    out: Path,
    parents: Sequence[Path],
    *,
    rule: str,
    weights: str | None,
    base: Path | None,
    settings: Sequence[str],
    statistics: Sequence[Path],
    space: str | None,
    rank: int | None,
    tail_tolerance: float | None,
    max_rank: int | None,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Check, merge, and say what came of it.

    Raises:
        ConfigError: what was asked for cannot be, or the parents do not fit.
        WeightsError: a file is damaged.
    """
    # A merge is bound by memory; more threads cost more CPU and save little. torch reads this when it is loaded.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from coharness.evolution.merging import RankPolicy
    from coharness.evolution.merging.folders import carry_out, plan_merge

    try:
        policy = RankPolicy(rank=rank, tail_tolerance=tail_tolerance, max_rank=max_rank)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    plan = plan_merge(
        rule,
        parents,
        out,
        weights=None if weights is None else _numbers(weights),
        base=base,
        settings=_settings(settings),
        statistics=statistics,
        space=space,
        policy=policy,
    )
    num_tensors = plan.num_tensors
    facts: dict[str, Any] = {"recipe": plan.recipe, "kind": plan.kind.value} if dry_run else carry_out(plan)
    if as_json:
        typer.echo(json.dumps({**facts, "out": None if dry_run else str(out), "num_tensors": num_tensors}))
        return ExitCode.DONE
    done = "would merge" if dry_run else "merged"
    typer.echo(
        f"{done} {len(plan.parents)} parents ({plan.kind}, {num_tensors} tensors) by {rule} ({plan.rule.source})"
    )
    typer.echo("  " + ", ".join(f"{name}={value}" for name, value in facts["recipe"]["settings"].items()))
    if "tail_energy" in facts:
        note = ", which depends on the bases" if facts["depends_on_basis"] else ""
        typer.echo(
            f"  in {facts['space']} space{note}; rank {facts['rank']}, at most {facts['tail_energy']:.2g} of a module's squared "
            "norm cut off"
        )
    if not dry_run:
        typer.echo(f"  {out}")
    return ExitCode.DONE


def rules(*, as_json: bool) -> ExitCode:
    """Show the table of rules."""
    from coharness.evolution.merging import RULES

    rows: list[dict[str, Any]] = [
        {
            "name": rule.name,
            "base": rule.base.value,
            "statistics": rule.statistics.value,
            "settings": {
                name: str(value) if isinstance(value, str) else value for name, value in rule.settings.items()
            },
            "description": rule.description,
            "source": rule.source,
        }
        for rule in RULES.values()
    ]
    if as_json:
        typer.echo(json.dumps(rows, default=list))
        return ExitCode.DONE
    for row in rows:
        typer.echo(f"{row['name']}: {row['description']} {row['source']}.")
        settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
        typer.echo(f"    base {row['base']}, {row['statistics']} statistics; {settings or 'no settings'}")
    return ExitCode.DONE


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"--weights is {text!r}; expected numbers with commas between them, such as 0.5,0.3,0.2"
        ) from error


def _settings(words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"--set is {word!r}; expected NAME=VALUE, such as density=0.2")
        try:
            found[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            found[name.replace("-", "_")] = value
    return found
