"""Student and teacher as one judge: the student answers where its risk is bounded, the teacher everywhere else.

Satisfies `AttemptJudge`. An item goes up where the student's confidence is below the threshold that anchors gave it, where the
text is unlike what it was trained on, or, once shadow traffic alarms, always. The alarm does not reset itself: a student that
drifted is distilled and tested again.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coharness.reward.algebra.part import Part
from coharness.reward.judges.prefilter import degenerate
from coharness.reward.judges.protocol import AttemptJudge
from coharness.reward.panel.selective import Selection, fit_selection
from coharness.reward.students.features import Item
from coharness.reward.students.shadow import Shadow
from coharness.reward.students.student import SCORE, Student


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Where items went."""

    by_student: int = 0
    unsure: int = 0
    novel: int = 0
    after_alarm: int = 0
    shadowed: int = 0
    "Of those by the student; the teacher judged them as well."

    @property
    def num_items(self) -> int:
        """All items that were judged."""
        return self.by_student + self.unsure + self.novel + self.after_alarm

    @property
    def teacher_share(self) -> float:
        """Calls of the teacher an item, shadow traffic included; 1 is what it costs without a student."""
        return (self.num_items - self.by_student + self.shadowed) / max(self.num_items, 1)


def confidence(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """How far scores are from one half, in [0, 1]."""
    return np.asarray(2 * np.abs(np.asarray(scores, dtype=np.float64) - 0.5))


def select(
    student: Student, anchors: Sequence[tuple[Item, bool]], *, alpha: float = 0.1, delta: float = 0.1
) -> Selection:
    """The threshold from which the student is wrong in at most `alpha` of its answers, with confidence 1 - `delta`.

    Args:
        student: Fitted on other items.
        anchors: Settled items: whether the answer is good.
        alpha: Risk that is allowed.
        delta: Chance that it is higher all the same.

    Raises:
        ValueError: no anchors.
    """
    scores = student.predict([item for item, _ in anchors])[:, student.score_index]
    truth = np.asarray([good for _, good in anchors], dtype=bool)
    return fit_selection(confidence(scores), (scores > 0.5) != truth, alpha=alpha, delta=delta)


class EscalatingJudge:
    """A student in front of its teacher. Safe in threads."""

    def __init__(
        self,
        student: Student,
        teacher: AttemptJudge,
        selection: Selection,
        shadow: Shadow,
        *,
        novelty_bound: float = 0.5,
    ) -> None:
        """Args:
        student: Gives the same parts as the teacher.
        teacher: Who is asked where the student is not answered; owned, and closed with this.
        selection: Of `select`.
        shadow: Of `Shadow.start`.
        novelty_bound: Share of unseen words above which an item goes up.

        Raises:
            ValueError: student and teacher give different parts.
        """
        if set(student.parts) != set(teacher.part_names):
            raise ValueError(
                f"the student gives {', '.join(sorted(student.parts))}, its teacher {', '.join(sorted(teacher.part_names))}; "
                "expected the same: distil it from this teacher"
            )
        self._student, self._teacher, self._selection = student, teacher, selection
        self._novelty_bound = novelty_bound
        self._shadow = shadow
        self._traffic = Traffic()
        self._lock = threading.Lock()

    @property
    def part_names(self) -> tuple[str, ...]:
        """The teacher's."""
        return self._teacher.part_names

    @property
    def traffic(self) -> Traffic:
        """Where items went so far."""
        with self._lock:
            return self._traffic

    @property
    def shadow(self) -> Shadow:
        """The comparison so far."""
        with self._lock:
            return self._shadow

    def close(self) -> None:
        """Close the teacher."""
        self._teacher.close()

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        """Parts of each completion, in order; one that has no content is the teacher's, who does not pay for it."""
        items = [(question, text) for text in completions]
        scores = self._student.predict(items)
        sure = self._selection.answers(confidence(scores[:, self._student.score_index])) if items else np.zeros(0, bool)
        new = self._student.novelty(items) > self._novelty_bound
        hollow = np.asarray([degenerate(text) is not None for text in completions], dtype=bool)
        with self._lock:
            shadow = self._shadow
        answers = sure & ~new & ~hollow & (not shadow.alarms)
        shadowed = np.asarray([a and shadow.takes(item) for a, item in zip(answers, items, strict=True)], dtype=bool)
        up = np.flatnonzero(~answers | shadowed)
        theirs = dict(zip(up.tolist(), self._ask(question, [completions[i] for i in up]), strict=True))
        compared, disagreed, parts = 0, 0, []
        for i, row in enumerate(scores):
            if not answers[i]:
                parts.append(theirs[i])
                continue
            parts.append(self._own(row))
            value = {part.name: part.value for part in theirs[i]}[SCORE] if shadowed[i] else None
            if value is not None:
                compared += 1
                disagreed += shadow.disagree(float(row[self._student.score_index]), value)
        self._count(answers, new, sure, shadowed, alarmed=shadow.alarms)
        if compared:
            with self._lock:
                self._shadow = self._shadow.observed(disagreed, compared)
        return parts

    def _ask(self, question: str, texts: Sequence[str]) -> list[tuple[Part, ...]]:
        return self._teacher.judge(question, texts) if texts else []

    def _own(self, row: npt.NDArray[np.float64]) -> tuple[Part, ...]:
        values = dict(zip(self._student.parts, row.tolist(), strict=True))
        return tuple(Part.ok(name, values[name], "by the student") for name in self.part_names)

    def _count(
        self,
        answers: npt.NDArray[np.bool_],
        new: npt.NDArray[np.bool_],
        sure: npt.NDArray[np.bool_],
        shadowed: npt.NDArray[np.bool_],
        *,
        alarmed: bool,
    ) -> None:
        by_student, total = int(answers.sum()), len(answers)
        novel = 0 if alarmed else int((~answers & sure & new).sum())
        with self._lock:
            t = self._traffic
            self._traffic = replace(
                t,
                by_student=t.by_student + by_student,
                novel=t.novel + novel,
                unsure=t.unsure + (0 if alarmed else total - by_student - novel),
                after_alarm=t.after_alarm + (total if alarmed else 0),
                shadowed=t.shadowed + int(shadowed.sum()),
            )
