"""Checks before a run starts: what the config needs and this machine, these files and these engines have.

Each finding names the thing, what was found and the fix; an error refuses the run before any work is done.
"""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coharness.config.schema import RunConfig
from coharness.loop.build import run_sources
from coharness.loop.context import build_context
from coharness.records.errors import CoharnessError, PreflightError

MIN_FREE_BYTES = 2 * 2**30


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    "The run is refused."
    WARNING = "warning"
    "The run starts; a person should know."
    INFO = "info"
    "Worth reading."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found."""

    level: Level
    what: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """All findings."""

    findings: tuple[Finding, ...]

    def raise_if_failed(self) -> None:
        """Refuse the run where there is an error.

        Raises:
            PreflightError: names every error.
        """
        errors = [f"{f.what}: {f.message}" for f in self.findings if f.level is Level.ERROR]
        if errors:
            raise PreflightError("\n".join(errors))


def preflight(config: RunConfig) -> PreflightReport:
    """Check tasks, base, disk and cores; loads neither torch nor ray."""
    findings: list[Finding] = []
    try:
        sources = run_sources(config)
        ctx = build_context(config, sources)
        findings.append(
            Finding(
                level=Level.INFO,
                what="tasks",
                message=f"{len(ctx.space.formats)} families, {len(ctx.space.mix)} evaluation cells, "
                f"{ctx.space.num_variants} serving variants a family",
            )
        )
        sealed = len(ctx.space.mix)
        all_cells = sum(ctx.space.num_levels.values())
        if sealed < all_cells:
            findings.append(
                Finding(
                    level=Level.WARNING,
                    what="tasks",
                    message=f"{all_cells - sealed} of {all_cells} (family, level) cells have too few distinct tasks to be "
                    "sealed; they are trained on and not measured",
                )
            )
    except CoharnessError as error:
        findings.append(Finding(level=Level.ERROR, what="tasks", message=str(error)))
    findings += _base_findings(config)
    findings += _machine_findings(config)
    return PreflightReport(findings=tuple(findings))


def _base_findings(config: RunConfig) -> list[Finding]:
    from coharness.policy.bases import resolve_base

    try:
        spec = resolve_base(config.policy.base)
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what="policy.base", message=str(error))]
    findings = [
        Finding(
            level=Level.INFO,
            what="policy.base",
            message=f"{spec.name}: {spec.num_parameters / 1e6:.2f} M parameters, digest {spec.digest[:12]}",
        )
    ]
    if config.policy.max_context > spec.max_context:
        findings.append(
            Finding(
                level=Level.ERROR,
                what="policy.max_context",
                message=f"is {config.policy.max_context}, the base {spec.name} has room for {spec.max_context} tokens",
            )
        )
    template = config.harness.template
    if spec.is_chat != template.startswith("chat"):
        kind = "chat" if spec.is_chat else "raw"
        findings.append(
            Finding(
                level=Level.WARNING,
                what="harness.template",
                message=f"is {template!r}, and {spec.name} is a {kind} base; "
                f"{'use a chat template' if spec.is_chat else 'use a template with a cue, such as bare'}",
            )
        )
    return findings


def _machine_findings(config: RunConfig) -> list[Finding]:
    findings = []
    folder = Path(config.run_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        findings.append(
            Finding(
                level=Level.ERROR,
                what="run_dir",
                message=f"{folder} has {free / 2**30:.1f} GiB free, a run needs at least {MIN_FREE_BYTES / 2**30:.0f} GiB; "
                "free some, or choose another run_dir",
            )
        )
    if not os.access(folder, os.W_OK):
        findings.append(Finding(level=Level.ERROR, what="run_dir", message=f"{folder} cannot be written to"))
    cores = os.cpu_count() or 1
    wanted = (config.fleet.rollout_workers + config.fleet.trainers) * config.fleet.threads_per_worker
    if wanted > 2 * cores:
        findings.append(
            Finding(
                level=Level.WARNING,
                what="fleet",
                message=f"asks for {wanted} threads on {cores} cores; oversubscribed, everything is slower",
            )
        )
    return findings
