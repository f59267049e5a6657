"""A run from its start, or its resumption, to its report: what `run` and `resume` share.

    carry out ──▶ ended in order ──▶ read the sealed tasks, once ──▶ report ──▶ summary, exit code
        └───────▶ interrupted ─────────────────────────────────────▶ report ──▶ how to resume

Whoever stops it, and however often, the journal makes the run resumable, and the message says by which command.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coharness.cli.display import Display, Progress, open_display
from coharness.cli.exit_codes import ExitCode
from coharness.cli.stopping import HARD_MESSAGE, SOFT_MESSAGE, Stop, StopSwitch

if TYPE_CHECKING:
    from coharness.loop.run_dir import RunDir


def resume_command(run: Path) -> str:
    """The command line that goes on with a run."""
    text = str(run)
    return f"coharness resume {text}" if text.isprintable() and " " not in text else f"coharness resume '{text}'"


def drive(run_dir: "RunDir", run: Path, *, resume: bool, as_json: bool, progress: Progress) -> ExitCode:
    """Carry a run out to its end and report on it.

    Args:
        run_dir: the run's folder, created or opened.
        run: the folder as the user would name it again.
        resume: whether it was begun before.
        as_json: print one JSON object on standard output at the end; progress goes to standard error then.
        progress: how progress is shown.
    """
    stream = sys.stderr if as_json else sys.stdout
    with _log_file(run_dir.logs_dir / "driver.log"):
        display = open_display(progress, str(run), stream)
        try:
            # With --json standard output holds one object; Ray prints there when a worker dies.
            with redirect_stdout(sys.stderr) if as_json else nullcontext(), StopSwitch() as switch:
                interrupted = _carry_out(run_dir, run, resume, display, switch)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            display.close()
        return _conclude(run_dir, run, interrupted, as_json)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """What the project's loggers say goes to a file; the terminal belongs to the display."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("coharness", "actors", "clusters")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


def _carry_out(run_dir: "RunDir", run: Path, resume: bool, display: Display, switch: StopSwitch) -> bool:
    """Whether the run was interrupted."""
    from coharness.cli.compose import carry_out
    from coharness.loop.engine import StopKind
    from coharness.loop.status import status_from_journal

    if resume and status_from_journal(run)["phase"] == "done":
        # It lacks its report at most; a cluster would be started for nothing.
        return False
    config = run_dir.load_config()
    if config.fleet.type == "ray":
        display.say("opening a Ray session and loading the base in each worker; this takes a while")
    said = 0

    def should_stop() -> Stop | None:
        nonlocal said
        stop = switch.wanted
        wanted = 0 if stop is None else 1 + stop.hard
        if wanted > said:
            display.say(HARD_MESSAGE if wanted == 2 else SOFT_MESSAGE)
            said = wanted
        return stop

    kind = carry_out(run, config, resume=resume, on_status=display.update, should_stop=should_stop)
    return kind is StopKind.INTERRUPTED


def _conclude(run_dir: "RunDir", run: Path, interrupted: bool, as_json: bool) -> ExitCode:
    from coharness.loop.status import status_from_journal
    from coharness.report import metrics, terminal_summary, write_report

    if not interrupted and not run_dir.sealed_path.exists():
        interrupted = not _read_sealed(run, quiet=as_json)
    page = write_report(run)
    metrics.write(run)
    status = status_from_journal(run)
    code = ExitCode.INTERRUPTED if interrupted else _code_of_end(run_dir, status)
    if as_json:
        result = {
            "run": str(run),
            "exit_code": int(code),
            "ended": code.name.lower(),
            "report": str(page),
            "sealed": str(run_dir.sealed_path) if run_dir.sealed_path.exists() else None,
            "resume": resume_command(run) if interrupted else None,
            "status": status,
        }
        typer.echo(json.dumps(result, ensure_ascii=False, default=str))
        return code
    typer.echo(terminal_summary(run))
    typer.echo(f"\nrun     {run}\nreport  {page}")
    if interrupted:
        typer.echo(f"resume  {resume_command(run)}")
    elif code is ExitCode.BUDGET_SPENT:
        typer.echo("the minutes were spent before the rollouts; raise budget.minutes for the rest (exit code 3)")
    return code


def _read_sealed(run: Path, *, quiet: bool) -> bool:
    """Read the sealed tasks; False where someone interrupted the reading, which a resumption does again."""
    from coharness.loop.sealed import measure_sealed

    told: set[str] = set()

    def progress(what: str, num_done: int, num_tasks: int) -> None:
        if what not in told and not quiet:
            told.add(what)
            typer.echo(f"reading the sealed tasks: {what}, {num_tasks:,} tasks")

    try:
        measure_sealed(run, progress)
    except KeyboardInterrupt:
        return False
    return True


def _code_of_end(run_dir: "RunDir", status: Mapping[str, Any]) -> ExitCode:
    budget = run_dir.load_config().budget
    in_time = status["elapsed_s"] < budget.minutes * 60
    return ExitCode.DONE if in_time or status["rollouts"] >= budget.rollouts else ExitCode.BUDGET_SPENT
