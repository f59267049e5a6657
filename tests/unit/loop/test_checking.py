"""Answers that are checked several at once: side by side, each with its own group, and never another verdict."""

import threading
from typing import Any

import pytest

from coharness.loop.checking import Checks
from coharness.loop.worker import EpisodeWorker
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.harness import Harness
from coharness.records.ids import ItemId, PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Check
from coharness.records.task import VerifierSpec
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(["reverse"], max_level=2)])
REF = VersionRef(PolicyId("p0"), 0)
WEIGHTS = WeightsRef(uri="", digest="base", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
HARNESS = Harness(tasks=())
TASKS = [SOURCES.make("reverse", 2, seed) for seed in range(4)]


class Meeting:
    """A verifier that answers nobody before `num` are asking."""

    def __init__(self, num: int) -> None:
        self._barrier = threading.Barrier(num, timeout=20.0)
        self.closed = False

    def check(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
        self._barrier.wait()
        return Check(correct=answer == expected, partial=float(answer == expected))

    def close(self) -> None:
        self.closed = True


class Fragile:
    """A verifier that fails on one answer."""

    def __init__(self, bad: str) -> None:
        self._bad = bad

    def check(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
        if answer == self._bad:
            raise BoundaryError(Boundary.VERIFIER, "the service said no")
        return Check(correct=answer == expected, partial=0.5)

    def close(self) -> None:
        """Nothing was started."""


def batch() -> WorkBatch:
    items = tuple(
        WorkItem(
            id=ItemId(number),
            version=REF,
            harness=HARNESS.id,
            task=task.ref,
            format="plain",
            purpose=Purpose.TRAIN,
            seed=number,
            group_size=1,
            temperature=1.0,
            max_tokens=32,
        )
        for number, task in enumerate(TASKS)
    )
    return WorkBatch(id=0, items=items, harnesses={HARNESS.id: HARNESS}, weights={REF: WEIGHTS}, lease_s=60.0)


def worker(verifier: Any, concurrency: int) -> EpisodeWorker:
    """Answers each task right."""
    right = {f"{task.question}=": task.answer for task in TASKS}
    engine = ScriptedGenerator(lambda prompt, seed: right[prompt])
    return EpisodeWorker("w", SOURCES, engine, verifier, 128, concurrency=concurrency)


def test_all_answers_of_a_batch_are_asked_about_before_one_is_read() -> None:
    made = worker(Meeting(len(TASKS)), concurrency=len(TASKS))
    result, _ = made.run(batch())
    assert [outcome.num_correct for outcome in result.outcomes] == [1] * len(TASKS)


def test_one_at_a_time_asks_when_the_answer_is_read() -> None:
    asked: list[str] = []

    class Noting(Fragile):
        def check(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
            asked.append(answer)
            return super().check(spec, question, expected, answer)

    checks = Checks(Noting(""), 1)
    later = checks.ask(TASKS[0], "x")
    assert asked == []
    assert later() == Check(correct=False, partial=0.5)
    assert asked == ["x"]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_failed_check_fails_its_own_group_and_no_other(concurrency: int) -> None:
    result, table = worker(Fragile(TASKS[2].answer), concurrency).run(batch())
    by_item = {outcome.item: outcome for outcome in result.outcomes}
    assert [by_item[ItemId(n)].status for n in range(4)] == [
        OutcomeStatus.DONE,
        OutcomeStatus.DONE,
        OutcomeStatus.FAILED,
        OutcomeStatus.DONE,
    ]
    assert by_item[ItemId(2)].boundary is Boundary.VERIFIER
    assert sorted(set(table.column("item").to_pylist())) == [0, 1, 3]


def test_closing_ends_the_verifier() -> None:
    verifier = Meeting(1)
    worker(verifier, concurrency=4).close()
    assert verifier.closed
