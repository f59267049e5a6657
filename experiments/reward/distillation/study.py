"""What a linear student of a judge saves at a bounded risk, on real texts, no model."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coharness.records.errors import ConfigError
from coharness.reward.panel.selective import fit_selection
from coharness.reward.panel.votes import accuracy, symmetrised
from coharness.reward.students.escalation import confidence
from coharness.reward.students.features import Item
from coharness.reward.students.student import SCORE, fit_student
from coharness.studies.contract import Cell, Figure, Summary, Table
from experiments.reward.llmbar import data_digest, data_file, load

SPLITS = 60
QUICK_SPLITS = 3
TRAIN, ANCHORS = 219, 100
"""Questions; the rest measures."""
RISKS = (0.1, 0.2)
DELTA = 0.1
FILES = ("natural", "neighbor", "gptinst", "gptout", "manual")
"""In the order of the recorded verdicts."""
TEACHER = "GPT-4/Vanilla"
MOST_WORDS = 40
TEACHER_ERROR = 0.1
_LIST = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationStudy:
    """Two criteria under random splits; see `coharness.studies.contract.Study`."""

    name: str = "reward/distillation"
    question: str = "How much of a judge's work can a linear student take over at a bounded risk?"
    num_seeds: int = 1
    cell_deadline_s: float = 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Random splits of the questions."""
        if rollouts is not None:
            raise ConfigError("reward/distillation splits recorded texts and rolls nothing out; leave --rollouts out")
        return {"splits": QUICK_SPLITS if quick else SPLITS}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """One cell a criterion."""
        config = {"splits": int(self.budget(quick=quick, rollouts=rollouts)["splits"]), "data": texts_digest()}
        return [
            Cell(arm=arm, seed=seed, config=config | ({"verdicts": data_digest()} if arm == "following" else {}))
            for seed in seeds
            for arm in ("following", "brief")
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Accuracies, calls and risks of every split."""
        run = following if cell.arm == "following" else brief
        splits = range(int(cell.config["splits"]))
        return {"rows": [run(np.random.default_rng([cell.seed, split])) for split in splits]}

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Means over the splits, and how often a bound was broken."""
        figures: list[Figure] = []
        table: list[tuple[str | int | float | None, ...]] = []
        for cell, result in sorted(cells.items(), key=lambda item: item[0].arm, reverse=True):
            rows = result["rows"]
            for name in ("teacher", "student", "shorter"):
                figures.append(_figure(f"{cell.arm}/{name}", [row[name] for row in rows]))
            for risk in RISKS:
                key = f"risk_{risk * 100:.0f}"
                for name in ("cascade", "calls", "risk"):
                    figures.append(_figure(f"{cell.arm}/{key}/{name}", [row[key][name] for row in rows]))
                broken = [row[key]["answered"] > 0 and row[key]["risk"] > risk for row in rows]
                figures.append(_figure(f"{cell.arm}/{key}/violated", [float(b) for b in broken], spread=False))
                table.append(
                    (
                        cell.arm,
                        risk,
                        *(_mean(row[name] for row in rows) for name in ("teacher", "student", "shorter")),
                        *(_mean(row[key][name] for row in rows) for name in ("cascade", "calls", "risk")),
                        round(float(np.mean(broken)), 3),
                    )
                )
        return Summary(
            figures=tuple(figures),
            tables=(
                Table(
                    title="Accuracy on questions that nothing was fitted on, mean over splits",
                    columns=(
                        "criterion",
                        "risk",
                        "teacher",
                        "student",
                        "shorter",
                        "cascade",
                        "calls",
                        "risk found",
                        "violated",
                    ),
                    rows=tuple(table),
                    note="calls: share of the teacher's left; shorter: the shorter of two answers, or any below the median",
                ),
            ),
        )


def following(rng: np.random.Generator) -> dict[str, Any]:
    """Which of two answers follows the instruction; the teacher is recorded."""
    texts, recorded = pairs(), load()
    verdict = symmetrised(*(rows[None] for rows in recorded.orders[TEACHER]))[0]
    train, anchors, test = _split(rng, len(texts))
    items: list[Item] = []
    taught: list[float] = []
    for i in train:
        # A pair's verdict is what is known of either answer; one that turns with the order says one half.
        items += [(texts[i][0], answer) for answer in texts[i][1:]]
        taught += [0.5 + 0.5 * float(verdict[i]), 0.5 - 0.5 * float(verdict[i])]
    student = fit_student(items, {SCORE: taught}, teacher=TEACHER)
    scores = student.predict([(q, a) for q, *both in texts for a in both])[:, 0].reshape(-1, 2)
    margin = scores[:, 0] - scores[:, 1]
    shorter = np.asarray([np.sign(len(second) - len(first)) for _, first, second in texts], dtype=np.float64)
    return _measured(margin, np.abs(margin), verdict, recorded.truth, shorter, anchors, test)


def brief(rng: np.random.Generator) -> dict[str, Any]:
    """Whether an answer is brief; the teacher is the rule with errors."""
    texts = pairs()
    items = [(question, answer) for question, *both in texts for answer in both]
    truth = np.asarray([1.0 if is_brief(answer) else -1.0 for _, answer in items])
    verdict = np.where(rng.random(len(items)) < TEACHER_ERROR, -truth, truth)
    train, anchors, test = (np.concatenate([2 * part, 2 * part + 1]) for part in _split(rng, len(texts)))
    student = fit_student([items[i] for i in train], {SCORE: (0.5 + 0.5 * verdict[train]).tolist()}, teacher="rule")
    scores = student.predict(items)[:, 0]
    lengths = np.asarray([len(answer) for _, answer in items])
    shorter = np.where(lengths < np.median(lengths[train]), 1.0, -1.0)
    return _measured(scores - 0.5, confidence(scores), verdict, truth, shorter, anchors, test)


def is_brief(answer: str) -> bool:
    """40 words at most, and no list."""
    return len(answer.split()) <= MOST_WORDS and not _LIST.search(answer)


def _measured(
    margin: Array, sure: Array, verdict: Array, truth: Array, shorter: Array, anchors: Any, test: Any
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "teacher": accuracy(verdict[test], truth[test]),
        "student": accuracy(margin[test], truth[test]),
        "shorter": accuracy(shorter[test], truth[test]),
    }
    wrong = np.sign(margin) != truth
    for risk in RISKS:
        found = fit_selection(sure[anchors], wrong[anchors], alpha=risk, delta=DELTA)
        answered = found.answers(sure[test])
        decided = np.where(answered, margin[test], verdict[test])
        row[f"risk_{risk * 100:.0f}"] = {
            "cascade": accuracy(decided, truth[test]),
            "calls": float(1 - answered.mean()),
            "answered": int(answered.sum()),
            "risk": float(wrong[test][answered].mean()) if answered.any() else 0.0,
        }
    return row


def _split(rng: np.random.Generator, num: int) -> tuple[Any, Any, Any]:
    order = rng.permutation(num)
    return order[:TRAIN], order[TRAIN : TRAIN + ANCHORS], order[TRAIN + ANCHORS :]


def pairs() -> list[tuple[str, str, str]]:
    """(question, first answer, second answer) of all 419, in the order of the recorded verdicts."""
    rows = [row for name in FILES for row in json.loads((data_file().parent / f"{name}.json").read_text("utf-8"))]
    return [(row["input"], row["output_1"], row["output_2"]) for row in rows]


def texts_digest() -> str:
    """SHA-256 over the five files."""
    digest = hashlib.sha256()
    for name in FILES:
        digest.update((data_file().parent / f"{name}.json").read_bytes())
    return digest.hexdigest()


def _mean(values: Any) -> float:
    return round(float(np.mean(list(values))), 3)


def _figure(name: str, values: Sequence[float], *, spread: bool = True) -> Figure:
    low, high = (float(q) for q in np.quantile(values, (0.05, 0.95))) if spread else (None, None)
    note = "5-95 % of splits" if spread else "share of splits"
    return Figure(name=name, value=float(np.mean(values)), low=low, high=high, unit="share", seeds=(0,), note=note)


STUDY = DistillationStudy()
