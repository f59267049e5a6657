"""Tasks: one problem with what is needed to verify an answer to it.

A task names its verifier by a `VerifierSpec`; `coharness.reward.verify` executes it. A task travels as a `TaskRef`, a
recipe of four small values, and is rebuilt by the source on the other side; the content hash tells whether both sides
built the same thing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coharness.records.ids import TaskId, hash_unit


class Pool(StrEnum):
    """What a task may be used for; a pure function of the task id, so that no bookkeeping can leak."""

    SEARCH = "search"
    "Training; proposers may see it."
    TRACK = "track"
    "Feeds curves and heat maps; never trained on, never decides."
    GATE = "gate"
    "Hidden; decides promotions."
    ANCHOR = "anchor"
    "Fixed; guards against regression."
    SEALED = "sealed"
    "Read once, after the run, for the report."


POOL_SHARES: tuple[tuple[Pool, float], ...] = (
    (Pool.SEARCH, 0.65),
    (Pool.TRACK, 0.05),
    (Pool.GATE, 0.15),
    (Pool.ANCHOR, 0.05),
    (Pool.SEALED, 0.10),
)
MIN_TASKS_TO_SEAL = 2_000
"""A (family, level) with fewer distinct tasks may be trained on but is not sealed: its tasks would be memorised."""


def pool_of(task_id: TaskId) -> Pool:
    """The pool of a task."""
    u = hash_unit("pool", task_id)
    for pool, share in POOL_SHARES:
        u -= share
        if u < 0:
            return pool
    return POOL_SHARES[-1][0]


class VerifierKind(StrEnum):
    """How an answer is checked."""

    EXACT = "exact"
    "Equal after trimming white space."
    NUMERIC = "numeric"
    "Equal as numbers within `tolerance` (absolute) or `relative` of the answer."
    CHOICE = "choice"
    "The letter or the text of one of `choices`."
    MATH = "math"
    "Mathematically equivalent, by math-verify in a process that can be killed."
    REASONING_GYM = "reasoning_gym"
    "The dataset's own scorer, in a guarded process behind a literal gate."
    PYTHON = "python"
    "The task source's own `score` function (user code, trusted)."
    CODE = "code"
    "The task's test passes; the answer is code and runs in a sandbox."


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """Which verifier checks an answer, with its parameters (JSON values)."""

    kind: VerifierKind
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRef:
    """The recipe of a task: enough for its source to build it again."""

    family: str
    level: int
    "1 is the easiest."
    seed: int
    id: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem."""

    id: TaskId
    family: str
    level: int
    seed: int
    question: str
    answer: str
    verifier: VerifierSpec
    references: Mapping[str, str]
    "Answer format -> a reference completion in that format; at least the source's plain format."
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ref(self) -> TaskRef:
        """The recipe of this task."""
        return TaskRef(family=self.family, level=self.level, seed=self.seed, id=self.id)

    @property
    def pool(self) -> Pool:
        """What this task may be used for."""
        return pool_of(self.id)


def task_id(family: str, level: int, question: str, answer: str) -> TaskId:
    """The name of a task: a hash of what makes it this problem and no other.

    The core names some hundred thousand candidates a run, so this is a plain hash of the joined parts.
    """
    parts = "\x1f".join((family, str(level), question, answer))
    return TaskId(hashlib.blake2b(parts.encode(), digest_size=8).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """What a source says about one family of tasks."""

    name: str
    num_levels: int
    formats: tuple[str, ...]
    "Answer formats (names in `coharness.tasks.formats`) its references can be rendered in; the first is the plain one."
    num_tasks: tuple[int | None, ...]
    "Distinct tasks of each level, None where there are more than anyone would count."
    max_answer_chars: int = 0
    "Longest reference completion in characters over all levels and formats; 0 where unknown."

    def may_seal(self, level: int) -> bool:
        """Whether tasks of `level` may stand in a sealed report."""
        count = self.num_tasks[level - 1]
        return count is None or count >= MIN_TASKS_TO_SEAL
