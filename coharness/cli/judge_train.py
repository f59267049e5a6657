"""`coharness judge train`: a judge from settled examples, tested against the one it is to replace."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.records.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the verb to `coharness judge`."""
    app.command()(train)


def train(
    examples: Annotated[
        list[Path],
        typer.Argument(metavar="EXAMPLES...", help="Pairs or scored answers, JSON lines.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the judge; must be new.", show_default=False)],
    objective: Annotated[str, typer.Option("--objective", help="pairwise, regression or generative.")] = "pairwise",
    base: Annotated[str, typer.Option("--base", help="tiny, smollm2 or a folder.")] = "smollm2",
    standard: Annotated[
        str | None, typer.Option("--standard", help="What a good answer is; stands in every prompt.")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over the examples.")] = 2,
    rows_per_step: Annotated[int, typer.Option("--rows-per-step", help="Answers of one optimizer step, 2 to 64.")] = 16,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of the adapter.")] = 3e-4,
    margin: Annotated[
        float, typer.Option("--margin", min=0.0, help="Log-odds between worth 1 and 0 (pairwise).")
    ] = 0.0,
    reason_weight: Annotated[
        float, typer.Option("--reason-weight", min=0.0, help="Of reasons beside verdicts (generative).")
    ] = 0.2,
    max_context: Annotated[int, typer.Option("--max-context", min=16, help="Longer rows are left out.")] = 512,
    max_train: Annotated[int | None, typer.Option("--max-train", min=1, help="Questions trained on at most.")] = None,
    rank: Annotated[int, typer.Option("--rank", min=1, help="Of the adapter.")] = 16,
    champion: Annotated[
        Path | None, typer.Option("--champion", help="Judge to replace; the untrained base where left out.")
    ] = None,
    anchors: Annotated[
        Path | None, typer.Option("--anchors", help="Frozen anchors; the champion's, else drawn from the examples.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of split, order and adapter.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Train a judge by pairs, scores or critiques; fresh samples decide whether it replaces the one before, anchors may veto."""
    from coharness.config.schema import LoraSection
    from coharness.loop.trained_judge import JudgeTraining, train_judge
    from coharness.policy.threads import set_threads
    from coharness.reward.training.episodes import JudgeObjective
    from coharness.reward.training.fit import Recipe
    from coharness.reward.training.verdict_prompt import STANDARD

    if objective not in list(JudgeObjective):
        raise ConfigError(f"--objective: got {objective!r:.40}, expected one of {', '.join(JudgeObjective)}")
    job = JudgeTraining(
        examples=tuple(examples),
        out=out,
        base=base,
        objective=JudgeObjective(objective),
        standard=standard or STANDARD,
        recipe=Recipe(epochs=epochs, rows_per_step=rows_per_step, learning_rate=learning_rate, seed=seed),
        margin=margin,
        reason_weight=reason_weight,
        max_context=max_context,
        max_train=max_train,
        lora=LoraSection(rank=rank, alpha=2.0 * rank),
        anchors=anchors,
        champion=champion,
    )
    set_threads(threads)
    record = train_judge(job, on_step=_tell)
    if as_json:
        told = {"judge": record.id, "folder": str(out), "promoted": record.promoted}
        typer.echo(json.dumps({**told, "gate": dict(record.gate), "figures": dict(record.figures)}))
    else:
        typer.echo(_text(out, record.figures, record.gate, promoted=record.promoted))
    raise typer.Exit(ExitCode.DONE if record.promoted else ExitCode.CHECK_FAILED)


def _tell(step: int, steps: int, metrics: Mapping[str, float]) -> None:
    kept = ", ".join(f"{name} {metrics[name]:.3f}" for name in ("loss/judge", "judge/accuracy") if name in metrics)
    typer.echo(f"step {step}/{steps}  {kept}", err=True)


def _text(out: Path, figures: Mapping[str, Any], gate: Mapping[str, Any], *, promoted: bool) -> str:
    def rate(name: str) -> str:
        low, value, high = figures[name]
        return f"{value:.3f}  ({low:.3f} to {high:.3f})"

    fresh, anchors = gate["fresh"], gate["anchors"]
    lines = [
        f"trained on     {figures['questions']['train']} questions, {figures['rows']} rows",
        f"fresh pairs    {figures['questions']['fresh']} questions, right:",
        f"  this judge   {rate('judge')}",
        f"  the one before {rate('champion')}",
        f"  shorter wins {rate('shorter')}",
        f"  longer wins  {rate('longer')}",
        f"gate           {gate['verdict']}: {fresh['wins']} better, {fresh['losses']} worse, {fresh['ties']} alike; "
        f"e-value {gate['e_value']:g} of {gate['needed']:g}",
        f"anchors        {anchors['wins']} better, {anchors['losses']} worse, {anchors['ties']} alike",
        f"{'promoted' if promoted else 'not promoted'}       {out}",
    ]
    return "\n".join(lines)
