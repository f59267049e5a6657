"""An ablation's figures and tables, from the scores of its arms; the sentence under each says no more than the intervals do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from coharness.stats.interval import Interval
from coharness.studies.ablation_plan import ContrastKind, Plan
from coharness.studies.ablation_statistics import (
    Effect,
    Scores,
    Verdict,
    arm_scores,
    detectable,
    effects,
    winner,
)
from coharness.studies.contract import Figure, Summary, Table

ARMS_TITLE, CONTRASTS_TITLE, SAID_TITLE = "Arms", "Contrasts, planned beforehand", "What may be said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Mean spending of one arm's cells."""

    tokens: float
    cpu_s: float
    tokens_per_task: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What the cells of an ablation gave."""

    seeds: tuple[int, ...]
    scores: Scores
    spent: Mapping[str, Spent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """How sure one wants to be."""

    alpha: float = 0.05
    power: float = 0.8
    expected_sd: float | None = None
    "Of a difference of two arms between seeds."


def summary_of(plan: Plan, readings: Readings, certainty: Certainty) -> Summary:
    """Figures, tables and the verdict; of contrasts whose arms were all run, the others are left out and counted."""
    run = [c for c in plan.contrasts if set(c.weights) <= set(readings.scores)]
    found = effects(run, readings.scores, alpha=certainty.alpha, power=certainty.power)
    return Summary(
        figures=(*_arm_figures(readings), *(_figure(effect, readings.seeds) for effect in found)),
        tables=(
            _arms_table(readings),
            _contrasts_table(found, certainty, len(plan.contrasts) - len(run)),
            _said_table(found, readings, certainty),
        ),
    )


def before_text(
    plan: Plan, certainty: Certainty, *, num_arms: int, num_seeds: int, num_blocks: int, sd: float | None
) -> list[str]:
    """What is known before anything runs: the arms, the tests, and what they can detect.

    Args:
        plan: arms and contrasts.
        certainty: level, power and expected spread.
        num_arms: arms that run; a smoke leaves some out.
        num_seeds: seeds of each block.
        num_blocks: blocks.
        sd: spread of a difference of two arms in cells that are finished already; takes the place of what was expected.
    """
    num = len(plan.contrasts)
    lines = [
        f"{num_arms} arms x {num_blocks} blocks x {num_seeds} seeds = {num_arms * num_blocks * num_seeds} cells"
        + (f", a fraction of resolution {plan.resolution}" if plan.resolution else ""),
        f"{num} planned contrasts, tested two-sided at {certainty.alpha:g} in all (Holm)",
    ]
    if num_seeds < 2:
        return [*lines, "one seed has no spread: nothing can be detected, and nothing will be said"]
    spread, source = (
        (sd, "in the cells that are finished") if sd is not None else (certainty.expected_sd, "as expected")
    )
    for scale in sorted({round(c.scale, 6) for c in plan.contrasts}):
        names = [c.name for c in plan.contrasts if round(c.scale, 6) == scale]
        unit = detectable(scale, num_seeds, num_blocks, num, certainty.alpha, certainty.power)
        shown = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        in_j = f" = {unit * spread:.3f} at a spread of {spread:.3f} {source}" if spread is not None else ""
        lines.append(
            f"minimum detectable effect (chance {certainty.power:g}): {unit:.2f} sd of a difference{in_j}; {shown}"
        )
    if spread is None:
        lines.append(
            "the spread is not known: set expected_sd, or let some cells finish, to have it in units of the score"
        )
    return lines


def spread_of(plan: Plan, scores: Scores) -> float | None:
    """Spread between seeds of a difference of two arms: over all contrasts that finished, scaled to two arms; else None."""
    squares = [
        (found.sd / found.contrast.scale) ** 2
        for found in effects([c for c in plan.contrasts if set(c.weights) <= set(scores)], scores)
        if found.sd is not None
    ]
    # Cells that all ended alike, as those of a tiny budget do, tell nothing of the spread.
    return float(np.sqrt(np.mean(squares))) if any(squares) else None


# Figures ------------------------------------------------------------------------------------------------------------


def _arm_figures(readings: Readings) -> list[Figure]:
    return [
        Figure(
            name=f"iqm/{arm.name}",
            value=arm.iqm,
            low=None if arm.interval is None else arm.interval.low,
            high=None if arm.interval is None else arm.interval.high,
            unit="J",
            seeds=readings.seeds,
            note="interquartile mean; stratified bootstrap of the seeds",
        )
        for arm in arm_scores(readings.scores)
    ]


def _figure(effect: Effect, seeds: tuple[int, ...]) -> Figure:
    return Figure(
        name=f"{effect.contrast.kind}/{effect.contrast.name}",
        value=effect.value,
        low=None if effect.student is None else effect.student.low,
        high=None if effect.student is None else effect.student.high,
        unit="J",
        seeds=seeds,
        note=f"{effect.verdict}; Student's interval, paired, not corrected",
    )


# Tables -------------------------------------------------------------------------------------------------------------


def _arms_table(readings: Readings) -> Table:
    rows = []
    for arm in arm_scores(readings.scores):
        spent = readings.spent.get(arm.name)
        rows.append(
            (
                arm.name, arm.num, arm.iqm, *_ends(arm.interval), arm.mean, arm.sd, arm.low, arm.high,
                None if spent is None else round(spent.tokens), None if spent is None else round(spent.cpu_s),
                None if spent is None else round(spent.tokens_per_task, 1),
            )
        )  # fmt: skip
    return Table(
        title=ARMS_TITLE,
        columns=("arm", "cells", "IQM", "low", "high", "mean", "sd", "min", "max", "tokens", "CPU s", "tokens a task"),
        rows=tuple(rows),
        note="IQM: interquartile mean over seeds and blocks, with a 95 % bootstrap interval, seeds drawn inside each block.",
    )


def _contrasts_table(found: Sequence[Effect], certainty: Certainty, num_left_out: int) -> Table:
    level = f"{100 * (1 - certainty.alpha):g} %"
    note = (
        f"Intervals are {level}, not corrected; p is a paired two-sided t test, p (flips) all sign flips, p (Holm) corrected for "
        f"the {len(found)} contrasts; detectable: least true difference found with chance {certainty.power:g}."
    )
    confused = [
        f"{e.contrast.name} with {', '.join(e.contrast.confused_with)}" for e in found if e.contrast.confused_with
    ]
    note += f" This design cannot tell {'; '.join(confused)}." if confused else ""
    note += f" {num_left_out} contrasts have arms that were not run." if num_left_out else ""
    return Table(
        title=CONTRASTS_TITLE,
        columns=(
            "contrast", "kind", "difference", "low", "high", "low (bootstrap)", "high (bootstrap)", "p", "p (flips)",
            "p (Holm)", "detectable", "verdict",
        ),
        rows=tuple(
            (
                e.contrast.name, e.contrast.kind.value, e.value, *_ends(e.student), *_ends(e.resampled), e.p, e.p_flip,
                e.p_holm, e.detectable, e.verdict.value,
            )
            for e in found
        ),
        note=note,
    )  # fmt: skip


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low, interval.high)


def _said_table(found: Sequence[Effect], readings: Readings, certainty: Certainty) -> Table:
    rows = [(e.contrast.name, sentence(e)) for e in found]
    best = winner(readings.scores, alpha=certainty.alpha)
    rows.append(
        (
            "best arm",
            "none: the intervals do not single one out" if best is None
            else f"{best}: better than every other arm, corrected for all pairs",
        )
    )  # fmt: skip
    return Table(title=SAID_TITLE, columns=("of", "sentence"), rows=tuple(rows))


def sentence(effect: Effect) -> str:
    """What may be said of one contrast."""
    contrast = effect.contrast
    if effect.detectable is None or effect.student is None:
        return "nothing: one seed has no spread"
    size = f"{effect.value:+.3f} ({effect.student.low:+.3f} to {effect.student.high:+.3f})"
    confused = f", or {', or '.join(contrast.confused_with)} does" if contrast.confused_with else ""
    match effect.verdict, contrast.kind:
        case Verdict.HELPS, ContrastKind.CONTROL:
            return f"the full arm is better by {size}"
        case Verdict.HARMS, ContrastKind.CONTROL:
            return f"the control is better: {size}"
        case Verdict.HELPS, _:
            return f"it helps{confused}: {size}"
        case Verdict.HARMS, _:
            return f"it harms{confused}: {size}"
    if effect.sd is not None and effect.sd <= 1e-12:
        return f"no difference shown: {size}, the same under every seed"
    return f"no difference shown: {size}; a true one below {effect.detectable:.3f} would often be missed by these seeds"
