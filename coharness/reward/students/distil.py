"""From a teacher's judgments to a student that may serve: fit, threshold, test, folder.

The teacher's judgments are on two kinds of items. Those whose truth is settled are never fitted on: by a hash, half of them give
the threshold and half are the fresh samples that decide; frozen anchors come with the student before, or are a third part. All
others train the student.

    student.json, student.npz   the student        cascade.json   threshold, figures, verdict        ledger.json   what is spent
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coharness.records.errors import ConfigError, PreflightError
from coharness.records.ids import content_hash, hash_unit
from coharness.reward.panel.selective import Selection
from coharness.reward.students.escalation import confidence, select
from coharness.reward.students.features import Item
from coharness.reward.students.promotion import ReplacementVerdict, decide_replacement
from coharness.reward.students.student import SCORE, Student, fit_student, load_student, save_student
from coharness.reward.training.gate import Ledger, Sample, write_ledger
from coharness.reward.training.record import write_text

FILE = "cascade.json"
SCHEMA = 1
LEAST_SETTLED = 60
"""Settled items below which neither threshold nor test can come out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """One judgment of the teacher."""

    item: Item
    value: float
    "Its score in [0, 1]."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A student with its threshold, and how it did."""

    student: Student
    selection: Selection
    verdict: ReplacementVerdict
    figures: Mapping[str, float]


def distil(
    taught: Sequence[Taught],
    settled: Mapping[Item, float],
    *,
    teacher: str,
    alpha: float = 0.1,
    delta: float = 0.05,
    ridge: float = 0.3,
    novelty_bound: float = 0.5,
    ledger: Ledger | None = None,
) -> Cascade:
    """Fit, select and test.

    Args:
        taught: The teacher's judgments, each item once.
        settled: Item -> true score in [0, 1]; above one half is good. Those that the teacher did not judge are not used.
        teacher: Its name and version.
        alpha: Risk that is allowed where the student answers.
        delta: Loss of accuracy that is allowed of student and teacher together.
        ridge: Penalty of the fit.
        novelty_bound: Share of unseen words above which an item goes up.
        ledger: Of this judge, from before.

    Raises:
        ConfigError: too few items of either kind, or settled ones that are spent.
    """
    known = [t for t in taught if t.item in settled]
    rest = [t for t in taught if t.item not in settled]
    if len(known) < LEAST_SETTLED or len(rest) < 10:
        raise ConfigError(
            f"{len(known)} of {len(taught)} judgments are on settled items and {len(rest)} are not; expected at least "
            f"{LEAST_SETTLED} and 10: have the teacher judge more of either"
        )
    student = fit_student([t.item for t in rest], {SCORE: [t.value for t in rest]}, teacher=teacher, ridge=ridge)
    parts: dict[str, list[Taught]] = {"select": [], "fresh": [], "anchors": []}
    for t in known:
        u = hash_unit("student split", *t.item)
        parts["select" if u < 0.4 else "fresh" if u < 0.8 else "anchors"].append(t)
    chosen = [(t.item, settled[t.item] > 0.5) for t in parts["select"]]
    selection = select(student, chosen, alpha=alpha)
    fresh, anchors = (_samples(student, selection, parts[n], settled, novelty_bound) for n in ("fresh", "anchors"))
    used = frozenset(_id(t.item) for t in parts["select"])
    verdict = decide_replacement(ledger or Ledger(), fresh=fresh, anchors=anchors, trained_on=used, delta=delta)
    return Cascade(
        student=student,
        selection=selection,
        verdict=verdict,
        figures=_figures(student, selection, parts["fresh"], settled, novelty_bound),
    )


def _answers(student: Student, selection: Selection, items: Sequence[Item], novelty_bound: float) -> Any:
    """The student's scores, and where it answers by itself; both [N]."""
    scores = student.predict(items)[:, student.score_index]
    return scores, selection.answers(confidence(scores)) & (student.novelty(items) <= novelty_bound)


def _samples(
    student: Student, selection: Selection, taught: Sequence[Taught], settled: Mapping[Item, float], bound: float
) -> list[Sample]:
    scores, own = _answers(student, selection, [t.item for t in taught], bound)
    return [
        Sample(
            id=_id(t.item),
            champion=_right(t.value, settled[t.item]),
            challenger=_right(float(score) if answers else t.value, settled[t.item]),
        )
        for t, score, answers in zip(taught, scores, own, strict=True)
    ]


def _right(value: float, truth: float) -> float:
    return 0.5 if value == 0.5 else float((value > 0.5) == (truth > 0.5))


def _figures(
    student: Student, selection: Selection, taught: Sequence[Taught], settled: Mapping[Item, float], bound: float
) -> dict[str, float]:
    scores, own = _answers(student, selection, [t.item for t in taught], bound)
    truth = [settled[t.item] for t in taught]
    by_teacher = np.asarray([_right(t.value, y) for t, y in zip(taught, truth, strict=True)])
    by_student = np.asarray([_right(float(s), y) for s, y in zip(scores, truth, strict=True)])
    return {
        "teacher": float(by_teacher.mean()),
        "student": float(by_student.mean()),
        "together": float(np.where(own, by_student, by_teacher).mean()),
        "calls": float(1 - own.mean()),
        "answered_wrong": float(1 - by_student[own].mean()) if own.any() else 0.0,
    }


def _id(item: Item) -> str:
    return content_hash({"q": item[0], "a": item[1]})


# Folders -------------------------------------------------------------------------------------------------------------


def write_cascade(folder: Path, cascade: Cascade) -> None:
    """Write a student's folder, `cascade.json` last."""
    save_student(cascade.student, folder)
    write_ledger(folder, cascade.verdict.ledger)
    selection = {k: v for k, v in asdict(cascade.selection).items() if k != "threshold"}
    verdict = cascade.verdict
    data = {
        "schema": SCHEMA,
        "threshold": cascade.selection.threshold if math.isfinite(cascade.selection.threshold) else None,
        "selection": selection,
        "promoted": verdict.promoted,
        "reason": verdict.reason,
        "fresh": asdict(verdict.fresh),
        "anchors": asdict(verdict.anchors),
        "figures": dict(cascade.figures),
    }
    write_text(folder / FILE, json.dumps(data, indent=2) + "\n")


def read_cascade(folder: Path) -> tuple[Student, Selection, bool]:
    """Student and threshold of a folder, and whether they passed their test.

    Raises:
        PreflightError: there is none, or it is damaged.
    """
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise PreflightError(f"{folder / FILE} is of schema {data['schema']}, expected {SCHEMA}; distil it again")
        threshold = math.inf if data["threshold"] is None else float(data["threshold"])
        selection = Selection(threshold=threshold, **{k: float(v) for k, v in data["selection"].items()})
        promoted = data["promoted"] is True
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PreflightError(f"cannot read {folder / FILE}: {error}; distil it again") from error
    return load_student(folder), selection, promoted
