"""`coharness judge fit`: a light judge from pairs and verdicts, ready to stand under `reward.judge` of a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from coharness.records.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the verb to `coharness judge`."""
    app.command()(fit)


def fit(
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS", help="JSON lines with question, better, worse.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write; must not exist.", show_default=False)],
    verdicts: Annotated[
        Path | None, typer.Option("--verdicts", help="JSON lines with question, answer, right (true or false).")
    ] = None,
    anchors: Annotated[
        Path | None, typer.Option("--anchors", help="Pairs that are not fitted to; says how many come out in order.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Fit a linear judge: features of question and answer, one weight each, stored as JSON under its content's hash."""
    from coharness.reward.linear.files import write_model
    from coharness.reward.linear.fit import fit as fit_model
    from coharness.reward.linear.rows import read_pairs, read_settled

    if out.exists():
        raise ConfigError(f"{out} exists already; a version of a judge is never overwritten, choose another name")
    ordered = read_pairs(pairs)
    settled = read_settled(verdicts) if verdicts is not None else []
    held = read_pairs(anchors) if anchors is not None else []
    shared = {p.question for p in held} & ({p.question for p in ordered} | {s.question for s in settled})
    if shared:
        raise ConfigError(
            f"{len(shared)} questions of {anchors} are fitted to as well, the first is {min(shared)!r}; take them out of one"
        )
    model = fit_model(settled, ordered)
    right = sum(model.logit(p.question, p.better) > model.logit(p.question, p.worse) for p in held)
    write_model(model, out)
    found = {"judge": model.id, "file": str(out), "pairs": len(ordered), "verdicts": len(settled)}
    if held:
        found |= {"anchors": len(held), "anchors_in_order": right}
    if as_json:
        typer.echo(json.dumps(found))
        return
    typer.echo(f"{model.id} in {out}, fitted to {len(ordered)} pairs and {len(settled)} verdicts")
    if held:
        typer.echo(f"{right} of {len(held)} anchors in order")
