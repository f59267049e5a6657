"""The queue of attempts that a person is to settle: drawn with known chances, so that what is settled speaks for all of them.

Chances rise with disagreement, and every attempt has at least the floor. A settled attempt weighs 1 / chance (Horvitz and
Thompson, 1952); else a queue of the most doubtful would say that everything is doubtful. One JSON line an event, appended.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.records.ids import hash_unit

MAX_SHARE_PER_PERSON = 0.5
"""Largest share of the anchors that may rest on one person's word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An attempt that waits for a person."""

    id: str
    "Content hash of question and answer."
    question: str
    answer: str
    judged: float
    chance: float
    "With which it was drawn; its weight is 1 / chance."


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What people said of a case."""

    case: Case
    labels: Mapping[str, float]
    "Person -> label in [0, 1]; a person's last word."

    @property
    def label(self) -> float:
        """Mean over people."""
        return sum(self.labels.values()) / len(self.labels)


def chance_of(disagreement: float, *, rate: float, floor: float = 0.2) -> float:
    """The chance of being drawn at a disagreement in [0, 1]: `rate` at the middle, `floor` of it at none, at most 1."""
    if not 0.0 <= disagreement <= 1.0 or not 0.0 < rate <= 1.0:
        raise ValueError(f"disagreement is {disagreement!r} and rate {rate!r}, expected [0, 1] and (0, 1]")
    return min(1.0, rate * (floor + (1.0 - floor) * 2.0 * disagreement))


@dataclass(slots=True)
class AuditQueue:
    """The queue in a file; one process writes it."""

    path: Path
    seed: int = 0
    _cases: dict[str, Case] = field(default_factory=dict)
    _labels: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.is_file():
            for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
                self._apply(self._parsed(line, number))

    def offer(self, case: Case) -> bool:
        """Draw a case by its chance, a pure function of its id; whether it waits now. One that was drawn stays as it was."""
        if case.id in self._cases:
            return True
        if hash_unit("audit", self.seed, case.id) >= case.chance:
            return False
        self._append(
            {
                "case": case.id,
                "question": case.question,
                "answer": case.answer,
                "judged": case.judged,
                "chance": case.chance,
            }
        )
        return True

    def settle(self, case_id: str, person: str, label: float) -> None:
        """Note a person's label in [0, 1] of a case that waits.

        Raises:
            ValueError: no such case, no person, or a label outside [0, 1].
        """
        if case_id not in self._cases or not person or not 0.0 <= label <= 1.0:
            raise ValueError(
                f"cannot settle {case_id!r} by {person!r} as {label!r}; expected a waiting case, a name, a label in [0, 1]"
            )
        self._append({"settles": case_id, "by": person, "label": label})

    @property
    def waiting(self) -> list[Case]:
        """Cases without any label, the most doubtful first."""
        open_cases = [case for case in self._cases.values() if case.id not in self._labels]
        return sorted(open_cases, key=lambda case: (-case.chance, case.id))

    @property
    def settled(self) -> list[Settled]:
        """Cases with labels."""
        return [Settled(case=self._cases[name], labels=dict(labels)) for name, labels in self._labels.items()]

    def _append(self, event: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=True, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._apply(event)

    def _parsed(self, line: str, number: int) -> Mapping[str, Any]:
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{self.path}, line {number} is no JSON; mend or delete that line") from error
        if not isinstance(event, Mapping):
            raise ConfigError(f"{self.path}, line {number} is no event; mend or delete that line")
        return event

    def _apply(self, event: Mapping[str, Any]) -> None:
        if "settles" in event:
            self._labels.setdefault(event["settles"], {})[event["by"]] = event["label"]
        else:
            case = Case(
                id=event["case"],
                question=event["question"],
                answer=event["answer"],
                judged=event["judged"],
                chance=event["chance"],
            )
            self._cases[case.id] = case


def weighted_mean(settled: Sequence[Settled]) -> float:
    """The mean label over everything that was offered, from what was drawn and settled (Hájek's ratio form).

    Raises:
        ValueError: nothing is settled.
    """
    if not settled:
        raise ValueError("nothing is settled yet")
    weights = [1.0 / s.case.chance for s in settled]
    return sum(w * s.label for w, s in zip(weights, settled, strict=True)) / sum(weights)


def influence_capped(settled: Sequence[Settled], *, share: float = MAX_SHARE_PER_PERSON) -> list[Settled]:
    """Settled cases of which no person alone carries more than `share`; the surplus is left out in a fixed order.

    Cases that two or more people agree on rest on nobody alone. A single annotator keeps at most `share` of what is left.
    """
    alone: dict[str, list[Settled]] = {}
    shared = []
    for one in settled:
        if len(one.labels) > 1:
            shared.append(one)
        else:
            alone.setdefault(next(iter(one.labels)), []).append(one)
    kept = list(shared)
    for person in sorted(alone):
        others = len(shared) + sum(len(v) for p, v in alone.items() if p != person)
        # n <= share (n + others)
        most = int(share / (1.0 - share) * others) if share < 1.0 else len(alone[person])
        kept += sorted(alone[person], key=lambda s: s.case.id)[:most]
    return kept
