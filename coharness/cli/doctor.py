"""`coharness doctor`: is this machine fit for a run, and is the code that would run the code that is here?"""

import json
from dataclasses import asdict

import typer

from coharness.cli.exit_codes import ExitCode


def doctor(*, with_ray: bool, as_json: bool) -> ExitCode:
    """Print one line a finding; `CHECK_FAILED` where one is an error."""
    from coharness.cli.compose import machine_findings

    findings = machine_findings(with_ray=with_ray)
    failed = [finding for finding in findings if finding.level == "error"]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], default=str))
    else:
        width = max((len(finding.what) for finding in findings), default=0)
        for finding in findings:
            typer.echo(f"{finding.level:<8}{finding.what:<{width}}  {finding.message}")
        typer.echo("this machine is fit for a run" if not failed else f"{len(failed)} errors; fix them before a run")
    return ExitCode.CHECK_FAILED if failed else ExitCode.DONE
