"""Conflicts: attempts that the judge rates high and the verifier fails, and the reverse."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from coharness.reward.algebra.part import Part
from coharness.stats.interval import Interval
from coharness.stats.proportions import wilson

HIGH = 0.7
LOW = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """An attempt that both have looked at."""

    task: str
    "Id of the task; attempts of one task share their question."
    question: str
    answer: str
    format: str
    judged: float
    "The judge's score in [0, 1]."
    verified: bool
    partial: float = 0.0
    "The verifier's partial credit in [0, 1]."
    criteria: Mapping[str, float] = field(default_factory=dict)
    "Criterion -> the judge's value."


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicts:
    """What was found among some attempts."""

    lenient: tuple[Audited, ...]
    "Rated high, failed: what a policy can exploit."
    strict: tuple[Audited, ...]
    "Rated low, passed: what a policy is wrongly punished for."
    num_audited: int

    @property
    def lenient_rate(self) -> Interval:
        """Share of all audited attempts, with Wilson's interval (7 of 60: .058 to .222)."""
        return wilson(len(self.lenient), self.num_audited)

    @property
    def strict_rate(self) -> Interval:
        """Share of all audited attempts, with Wilson's interval."""
        return wilson(len(self.strict), self.num_audited)


def mine(attempts: Sequence[Audited], *, high: float = HIGH, low: float = LOW) -> Conflicts:
    """Conflicts among attempts.

    Raises:
        ValueError: no attempt, or bounds that cross.
    """
    if not attempts or not 0.0 <= low < high <= 1.0:
        raise ValueError(
            f"got {len(attempts)} attempts and bounds {low:g}, {high:g}; expected some, and 0 <= low < high <= 1"
        )
    return Conflicts(
        lenient=tuple(a for a in attempts if a.judged >= high and not a.verified),
        strict=tuple(a for a in attempts if a.judged <= low and a.verified),
        num_audited=len(attempts),
    )


Judge = Callable[[str, Sequence[str]], list[tuple[Part, ...]]]
"""(question, answers) -> parts of each, as `AttemptJudge.judge` gives them."""


def audit_episodes(
    episodes: pa.Table, questions: Mapping[str, str], judge: Judge, *, texts: Sequence[str] | None = None
) -> list[Audited]:
    """Audited attempts of a replay store's episodes (`EPISODE_SCHEMA`), judged anew or from the judge's cache.

    A run judges under the content of question and completion, so that its own judge with its own cache gives what the run saw and
    pays nothing. Episodes without an answer, of a task that is not among `questions`, or without a judgment are left out.

    Args:
        episodes: rows of the store.
        questions: task id -> its question.
        judge: gives parts of completions.
        texts: what the policy wrote in each row, which is what a run's judge reads; the answers where left out.
    """
    by_task: dict[str, list[dict[str, object]]] = {}
    columns = ["task", "answer", "format", "exact", "partial"]
    for index, row in enumerate(episodes.select(columns).to_pylist()):
        if row["answer"] is not None and row["task"] in questions:
            text = row["answer"] if texts is None else texts[index]
            by_task.setdefault(str(row["task"]), []).append({**row, "text": text})
    audited = []
    for task, rows in by_task.items():
        for row, parts in zip(rows, judge(questions[task], [str(row["text"]) for row in rows]), strict=True):
            made = _audited(task, questions[task], row, parts)
            if made is not None:
                audited.append(made)
    return audited


def _audited(task: str, question: str, row: Mapping[str, object], parts: Iterable[Part]) -> Audited | None:
    values = {part.name: part.value for part in parts if part.value is not None}
    score = values.pop("judge/score", None)
    if score is None:
        return None
    return Audited(
        task=task,
        question=question,
        answer=str(row["text"]),
        format=str(row["format"]),
        judged=score,
        verified=row["exact"] == 1.0,
        partial=float(str(row["partial"])),
        criteria={name.removeprefix("judge/"): value for name, value in values.items()},
    )
