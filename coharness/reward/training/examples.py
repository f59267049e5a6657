"""Settled examples to train a judge on and to hold it against: a question with answers whose worth is known.

Files hold JSON lines, or one JSON array, of rows in three shapes, which may be mixed:

    {"question": …, "better": …, "worse": …, "margin": 0.5, "held_out": false, "better_reason": …, "worse_reason": …}
    {"input": …, "output_1": …, "output_2": …, "label": 1}          as published preference sets have them; 0 is a tie
    {"question": …, "answer": …, "score": 0.8, "reason": …}

The first is what `coharness judge audit RUN --pairs` writes. Scored answers of one question become one example.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash, hash_unit
from coharness.reward.json_rows import read_rows

PAIRS_PER_QUESTION = 4
SPREAD = 1e-6
"""Scores that differ by no more are a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An answer whose worth is known."""

    text: str
    score: float
    "In [0, 1]."
    reason: str = ""
    "Why, in words; what a judge that writes reasons learns from."


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One question and its settled answers."""

    question: str
    answers: tuple[Settled, ...]
    held_out: bool = False
    "Whether it was kept from training where it was made, and measures only."


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two answers to one question, the better one first; neither is better where their scores are equal."""

    question: str
    better: Settled
    worse: Settled

    @property
    def id(self) -> str:
        """Content hash; the same comparison has it in every file."""
        return content_hash({"q": self.question, "a": self.better.text, "b": self.worse.text})

    @property
    def gap(self) -> float:
        """Difference of the scores, 0 or more."""
        return self.better.score - self.worse.score

    @property
    def is_tie(self) -> bool:
        """Whether neither is better."""
        return self.gap <= SPREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Examples by what they are for; a question is in one of them."""

    train: tuple[Example, ...]
    calibrate: tuple[Example, ...]
    "Temperature and bias are fitted on these."
    anchors: tuple[Example, ...]
    "Frozen: the same for every change of this judge; they may veto, never promote."
    fresh: tuple[Example, ...]
    "Each comparison decides about one change and is spent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What part of the questions goes where; the rest trains."""

    calibrate: float = 0.1
    anchors: float = 0.1
    fresh: float = 0.25
    "Not used where the examples say themselves which are held out."

    def __post_init__(self) -> None:
        parts = (self.calibrate, self.anchors, self.fresh)
        if not all(0 <= part < 1 for part in parts) or sum(parts) >= 1:
            raise ConfigError(
                f"shares {parts} leave nothing to train on; expected three shares in [0, 1) that sum below 1"
            )


def comparisons(examples: Iterable[Example]) -> list[Comparison]:
    """All comparisons, at most 4 a question, the widest gaps first; ties only where a question has nothing else."""
    made = []
    for example in examples:
        pairs = [
            Comparison(question=example.question, better=max(p, key=_score), worse=min(reversed(p), key=_score))
            for p in combinations(example.answers, 2)
            if p[0].text != p[1].text
        ]
        decided = sorted((p for p in pairs if not p.is_tie), key=lambda p: -p.gap)
        made += (decided or pairs)[:PAIRS_PER_QUESTION]
    return made


def _score(answer: Settled) -> float:
    return answer.score


def split(
    examples: Sequence[Example], *, seed: int, shares: Shares | None = None, anchors: Sequence[Example] = ()
) -> Splits:
    """Questions by a hash of (seed, question).

    Args:
        examples: Each question once, as `read_examples` gives them.
        seed: Of the split; another seed lets what was fresh be trained on, so keep it for the life of a judge.
        shares: How much goes where.
        anchors: Frozen examples from elsewhere; their questions are left out of all other splits, and none is drawn.
    """
    shares = shares or Shares()
    frozen = {e.question for e in anchors}
    marked = any(e.held_out for e in examples)
    parts: dict[str, list[Example]] = {"train": [], "calibrate": [], "anchors": list(anchors), "fresh": []}
    for example in examples:
        if example.question in frozen:
            continue
        name = _named(hash_unit("judge split", seed, example.question), shares, fresh=0.0 if marked else shares.fresh)
        if marked and example.held_out:
            name = "fresh"
        elif anchors and name == "anchors":
            name = "train"
        parts[name].append(example)
    return Splits(**{name: tuple(found) for name, found in parts.items()})


def _named(u: float, shares: Shares, *, fresh: float) -> str:
    # The same stretch for each use whether anchors are drawn or given: what calibrates one judge trains none after it.
    for name, share in (("fresh", fresh), ("anchors", shares.anchors), ("calibrate", shares.calibrate)):
        if u < share:
            return name
        u -= share
    return "train"


# Files ---------------------------------------------------------------------------------------------------------------


def read_examples(*paths: Path) -> list[Example]:
    """The examples of some files, questions in the order in which they first stand there.

    Raises:
        ConfigError: a file cannot be read, a row has none of the shapes, or a file holds nothing; names the row.
    """
    gathered: dict[str, _Gathered] = {}
    for path in paths:
        rows = read_rows(path)
        if not rows:
            raise ConfigError(f"{path} holds no example; expected JSON lines such as {{question, better, worse}}")
        for where, row in rows:
            question, answers, held_out = _read(row, where)
            found = gathered.setdefault(question, _Gathered())
            found.answers += [a for a in answers if a not in found.answers]
            found.held_out |= held_out
    return [Example(question=q, answers=tuple(g.answers), held_out=g.held_out) for q, g in gathered.items()]


@dataclass(slots=True)
class _Gathered:
    answers: list[Settled] = field(default_factory=list)
    held_out: bool = False


def _read(row: Mapping[str, Any], where: str) -> tuple[str, list[Settled], bool]:
    if {"better", "worse"} <= row.keys():
        gap = _number(row.get("margin", 1.0), f"{where}: margin")
        better = Settled(
            text=_text(row, "better", where), score=0.5 + gap / 2, reason=_text(row, "better_reason", where, "")
        )
        worse = Settled(
            text=_text(row, "worse", where), score=0.5 - gap / 2, reason=_text(row, "worse_reason", where, "")
        )
        return _text(row, "question", where), [better, worse], row.get("held_out") is True
    if {"output_1", "output_2", "label"} <= row.keys():
        if row["label"] not in (0, 1, 2) or isinstance(row["label"], bool):
            raise ConfigError(f"{where}: label is {row['label']!r}, expected 1 or 2 for the better output, 0 for a tie")
        scores = {0: (0.5, 0.5), 1: (1.0, 0.0), 2: (0.0, 1.0)}[row["label"]]
        answers = [
            Settled(text=_text(row, f"output_{n}", where), score=score) for n, score in enumerate(scores, start=1)
        ]
        return _text(row, "input", where), answers, False
    for name in ("answer", "candidate"):
        if name in row and ("score" in row or "value" in row):
            score = _number(row.get("score", row.get("value")), f"{where}: score")
            reason = _text(row, "reason", where, "")
            settled = Settled(text=_text(row, name, where), score=score, reason=reason)
            return _text(row, "question", where), [settled], row.get("held_out") is True
    raise ConfigError(
        f"{where} has the fields {', '.join(map(str, row))}; expected question, better, worse, or input, output_1, output_2, "
        "label, or question, answer, score"
    )


def _text(row: Mapping[str, Any], name: str, where: str, default: str | None = None) -> str:
    value = row.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {name} is {value!r:.40}, expected text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{where}: {name} holds half of a surrogate pair, which is no text; repair the file"
        ) from error
    return value


def _number(value: Any, where: str) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= 1
    if not fine:
        raise ConfigError(f"{where} is {value!r:.40}, expected a number in [0, 1]")
    return float(value)
