"""What the worker holds its engine to: the stamp of every answer, the deadline of every call, and being closed."""

from collections.abc import Sequence
from dataclasses import replace

from coharness.loop.worker import EpisodeWorker
from coharness.policy.generation.scripted import CharacterCodec, ScriptedGenerator
from coharness.records.episode import StopReason
from coharness.records.errors import Boundary
from coharness.records.harness import EpisodeGenes, Harness
from coharness.records.ids import ItemId, PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import EngineCapabilities, Generation, GenerationRequest
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.verify import VerifierRouter
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(["count", "reverse"], max_level=2)])
REF = VersionRef(PolicyId("p0"), 3)
WEIGHTS = WeightsRef(uri="", digest="base", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
TASKS = (SOURCES.make("count", 1, 5), SOURCES.make("reverse", 2, 6))
# Retries are allowed, so that a withdrawn answer could be taken for one that says nothing.
HARNESS = Harness(tasks=(), episode=EpisodeGenes(retries=1))


class Watched:
    """A scripted engine that is looked at, and may lie about its weights or lose the second request of a call."""

    def __init__(self, *, stamp: str = "base", loses_second: bool = False) -> None:
        self._scripted = ScriptedGenerator(lambda prompt, seed: "abc")
        self._stamp = stamp
        self._loses_second = loses_second
        self.asked: list[GenerationRequest] = []
        self.num_closed = 0

    @property
    def capabilities(self) -> EngineCapabilities:
        return self._scripted.capabilities

    @property
    def codec(self) -> CharacterCodec:
        return self._scripted.codec

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        self.asked += requests
        answers = [replace(a, written_by=self._stamp) for a in self._scripted.generate(requests)]
        if self._loses_second:
            answers[1] = replace(answers[1], output_ids=[5], logprobs=[-1.0], stop_reason=StopReason.ABORTED)
        return answers

    def abort(self) -> None:
        raise AssertionError("nobody aborts here")

    def close(self) -> None:
        self.num_closed += 1


def run(
    engine: Watched, deadline_s: float | None = None
) -> tuple[EpisodeWorker, dict[int, tuple[object, object, str]]]:
    worker = EpisodeWorker("w", SOURCES, engine, VerifierRouter(), 128, deadline_s=deadline_s)
    items = tuple(
        WorkItem(
            id=ItemId(i), version=REF, harness=HARNESS.id, task=task.ref, format="plain", purpose=Purpose.TRAIN,
            seed=11, group_size=1, temperature=0.0, max_tokens=16,
        )
        for i, task in enumerate(TASKS)
    )  # fmt: skip
    batch = WorkBatch(id=1, items=items, harnesses={HARNESS.id: HARNESS}, weights={REF: WEIGHTS}, lease_s=60.0)
    result, _ = worker.run(batch)
    return worker, {o.item: (o.status, o.boundary, o.message or "") for o in result.outcomes}


def test_answers_of_other_weights_than_were_asked_for_are_never_used() -> None:
    _, outcomes = run(Watched(stamp="another"))
    for status, boundary, message in outcomes.values():
        assert (status, boundary) == (OutcomeStatus.FAILED, Boundary.WEIGHTS)
        assert "'another'" in message
        assert "'base'" in message


def test_a_withdrawn_answer_fails_its_own_item_and_is_not_asked_again() -> None:
    engine = Watched(loses_second=True)
    _, outcomes = run(engine, deadline_s=2.5)
    assert outcomes[0][0] is OutcomeStatus.DONE
    assert outcomes[1][:2] == (OutcomeStatus.FAILED, Boundary.DEADLINE)
    assert "generation.deadline_s=2.5" in outcomes[1][2]
    assert len(engine.asked) == 2


def test_every_request_carries_the_deadline_of_the_config() -> None:
    for deadline_s in (None, 7.0):
        engine = Watched()
        run(engine, deadline_s=deadline_s)
        assert {request.deadline_s for request in engine.asked} == {deadline_s}


def test_closing_the_worker_closes_its_engine() -> None:
    engine = Watched()
    worker, _ = run(engine)
    assert engine.num_closed == 0
    worker.close()
    assert engine.num_closed == 1
