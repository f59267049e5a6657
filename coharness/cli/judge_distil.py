"""`coharness judge distil`: a fast student of a judge from its judgments, with a threshold and a test."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.records.errors import ConfigError

if TYPE_CHECKING:
    from coharness.reward.students.distil import Taught
    from coharness.reward.students.features import Item


def register(app: typer.Typer) -> None:
    """Add the verb to `coharness judge`."""
    app.command()(distil)


def distil(
    judgments: Annotated[
        Path,
        typer.Argument(metavar="JUDGMENTS", help="JSON lines: question, candidate, value.", show_default=False),
    ],
    settled: Annotated[
        Path,
        typer.Option("--settled", help="Examples whose truth is known; those that were judged test the student."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the student; must be new.", show_default=False)],
    teacher: Annotated[str, typer.Option("--teacher", help="The judge's name and version.")] = "teacher",
    risk: Annotated[float, typer.Option("--risk", min=0.001, max=0.5, help="Of the student's own answers.")] = 0.1,
    loss: Annotated[float, typer.Option("--loss", min=0.001, max=0.5, help="Accuracy that may be lost.")] = 0.05,
    before: Annotated[
        Path | None, typer.Option("--before", help="The student to replace; what its tests spent stays spent.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Distil a judge into a fast student that answers where its risk is bounded and hands the rest up."""
    from coharness.reward.students.distil import distil as make
    from coharness.reward.students.distil import write_cascade
    from coharness.reward.training.gate import Ledger, read_ledger, write_ledger

    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is there and not empty; name a new folder for the student")
    ledger = Ledger() if before is None else read_ledger(before)
    made = make(_taught(judgments), _settled(settled), teacher=teacher, alpha=risk, delta=loss, ledger=ledger)
    write_cascade(out, made)
    if before is not None:
        write_ledger(before, made.verdict.ledger)
    verdict = made.verdict
    if as_json:
        data = {"promoted": verdict.promoted, "reason": verdict.reason, "fresh": asdict(verdict.fresh)}
        typer.echo(json.dumps({**data, "figures": dict(made.figures), "folder": str(out)}))
    else:
        typer.echo(_text(made.figures, made.selection.coverage))
        typer.echo(f"{'promoted' if verdict.promoted else 'not promoted'}, {verdict.reason}: {out}")
    raise typer.Exit(ExitCode.DONE if verdict.promoted else ExitCode.CHECK_FAILED)


def _taught(path: Path) -> "list[Taught]":
    from coharness.reward.students.distil import Taught
    from coharness.reward.training.examples import read_examples

    rows: dict[Item, float] = {}
    for example in read_examples(path):
        for answer in example.answers:
            rows[example.question, answer.text] = answer.score
    return [Taught(item=item, value=value) for item, value in rows.items()]


def _settled(path: Path) -> "dict[Item, float]":
    from coharness.reward.training.examples import read_examples

    return {(e.question, a.text): a.score for e in read_examples(path) for a in e.answers}


def _text(figures: Mapping[str, float], coverage: float) -> str:
    lines = [
        f"on fresh items   teacher {figures['teacher']:.3f}, student {figures['student']:.3f}, "
        f"together {figures['together']:.3f}",
        f"teacher's calls  {figures['calls']:.3f} of what they were; answers by the student, wrong: "
        f"{figures['answered_wrong']:.3f}",
        f"threshold        holds on {coverage:.3f} of the items that it was chosen on",
    ]
    return "\n".join(lines)
