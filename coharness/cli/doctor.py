"""`coharness doctor`: is this machine fit for a run, and is the code that would run the code that is here?"""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from coharness.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from coharness.reward.sandbox.program import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFinding:
    """One line about the sandbox: a layer, or one attempt at abuse in it."""

    level: str
    what: str
    message: str


def doctor(*, with_ray: bool, with_sandbox: bool, as_json: bool) -> ExitCode:
    """Print one line a finding; `CHECK_FAILED` where one is an error."""
    from coharness.cli.compose import machine_findings

    findings: list[Any] = list(machine_findings(with_ray=with_ray))
    if with_sandbox:
        findings += sandbox_findings()
    failed = [finding for finding in findings if finding.level == "error"]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], default=str))
    else:
        width = max((len(finding.what) for finding in findings), default=0)
        for finding in findings:
            typer.echo(f"{finding.level:<8}{finding.what:<{width}}  {finding.message}")
        typer.echo("this machine is fit for a run" if not failed else f"{len(failed)} errors; fix them before a run")
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE


def sandbox_findings() -> "list[SandboxFinding]":
    """Which sandbox layers work here, and what they do with each of the attempts at abuse (about a minute)."""
    from coharness.reward.sandbox.ladder import STRENGTH, make_runner, why_unusable
    from coharness.reward.sandbox.program import Layer

    findings, isolating = [], 0
    for layer in reversed(STRENGTH):
        runner = make_runner(layer)
        reason = why_unusable(runner)
        runner.close()
        if reason is not None:
            findings.append(SandboxFinding(level="warning", what=f"sandbox {layer}", message=f"absent: {reason}"))
            continue
        isolating += layer is not Layer.UNSAFE
        findings += _battery_findings(layer)
    if not isolating:
        message = "no layer that isolates works here; runs with code tasks will be refused"
        findings.append(SandboxFinding(level="error", what="sandbox", message=message))
    return findings


def _battery_findings(layer: "Layer") -> "list[SandboxFinding]":
    from coharness.reward.sandbox.abuse import run_battery

    findings, counts = [], dict[str, int]()
    for found in run_battery(layer):
        counts[found.verdict] = counts.get(found.verdict, 0) + 1
        if found.verdict is not found.expected:
            message = (
                f"attempt {found.attempt.number}, {found.attempt.name}: {found.verdict}, expected {found.expected} "
                f"({found.evidence})"
            )
            findings.append(SandboxFinding(level="error", what=f"sandbox {layer}", message=message))
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    message = f"{told} of {sum(counts.values())} attempts at abuse"
    return [SandboxFinding(level="error" if findings else "ok", what=f"sandbox {layer}", message=message), *findings]
