"""What crosses a process: every record pickles and is equal, and of the same hash, on the other side."""

import pickle
from pathlib import Path

import pytest

from coharness.config.schema import RunConfig
from coharness.records import events as ev
from coharness.records.episode import Episode, Score, StopReason
from coharness.records.errors import Boundary, BoundaryError, ConfigError, ReplayMismatch
from coharness.records.events import Capacity
from coharness.records.harness import Harness, PromptGenes, TaskGene
from coharness.records.ids import HarnessId, ItemId, JobId, JudgeId, PolicyId, TaskId
from coharness.records.judging import Alarm, Cause, MendedJudge
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Check, Generation, GenerationRequest
from coharness.records.task import FamilySpec, Pool, Task, TaskRef, VerifierKind, VerifierSpec
from coharness.records.training import JobResult, JobStatus, MergeJob, RepairJob, TrainJob
from coharness.records.work import (
    Audit,
    BatchResult,
    Judging,
    Outcome,
    OutcomeStatus,
    Pairing,
    Purpose,
    Serving,
    WorkBatch,
    WorkItem,
)

REF = VersionRef(PolicyId("p0"), 3)
HARNESS = Harness(
    tasks=(TaskGene(family="count", level_low=1, level_high=2, weight=1.0),), prompt=PromptGenes(formats={"count": "trace"})
)  # fmt: skip
WEIGHTS = WeightsRef(uri="", digest="d", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
VERSION = PolicyVersion(ref=REF, weights=WEIGHTS, parents=(REF,), operator="base")
SPEC = VerifierSpec(kind=VerifierKind.NUMERIC, params={"tolerance": 0.5})
TASK = Task(
    id=TaskId("t"), family="count", level=1, seed=2, question="q", answer="a", verifier=SPEC, references={"plain": "a"}
)
ITEM = WorkItem(
    id=ItemId(1), version=REF, harness=HARNESS.id, task=TASK.ref, format="plain", purpose=Purpose.TRAIN, seed=1,
    group_size=1, temperature=0.0, max_tokens=8,
)  # fmt: skip
BATCH = WorkBatch(id=1, items=(ITEM,), harnesses={HARNESS.id: HARNESS}, weights={REF: WEIGHTS}, lease_s=1.0)
OUTCOME = Outcome(item=ItemId(1), status=OutcomeStatus.DONE, scores=(1.0,))
RESULT = BatchResult(batch=1, worker="w", outcomes=(OUTCOME,), wall_s=1.0, cpu_s=1.0)
TRAIN = TrainJob(
    id=JobId(1), start=VERSION, step=4, hyperparameters={"learning_rate": 1e-3}, items=(ItemId(1),), borrowed=(), seed=0
)
MERGE = MergeJob(id=JobId(2), child=PolicyId("p9"), rule="linear", parents=(VERSION,), weights=(1.0,))
JOB_RESULT = JobResult(job=JobId(1), status=JobStatus.DONE, version=VERSION, metrics={"loss": 1.0})
SCORE = Score(value=1.0, exact=1.0, partial=1.0, format=1.0, length=0.5, feedback="")
EPISODE = Episode(
    item=ItemId(1), sample=0, policy="p0", step=3, harness=HARNESS.id, task="t", family="count", level=1, task_seed=2,
    format="plain", purpose=Purpose.TRAIN, temperature=1.0, token_ids=[1, 2], loss_mask=[False, True],
    logprobs=[0.0, -0.5], prompt_length=1, reference_ids=[2], answer=None, stop_reason=StopReason.EOS, score=SCORE,
)  # fmt: skip
REQUEST = GenerationRequest(prompt_ids=(1, 2), weights=WEIGHTS, seed=1, position=0, temperature=0.5, max_new_tokens=4)
RECORDS = (
    HARNESS,
    WEIGHTS,
    VERSION,
    TASK,
    TaskRef(family="count", level=1, seed=2, id=TaskId("t")),
    FamilySpec(name="count", num_levels=1, formats=("plain",), num_tasks=(None,)),
    ITEM,
    BATCH,
    OUTCOME,
    RESULT,
    TRAIN,
    MERGE,
    RepairJob(id=JobId(3), judge=JudgeId("j-1"), items=(ItemId(4),), seed=5),
    Judging(judge=JudgeId("j-1"), counts=False, audited=True),
    Audit(judged=0.5, verified=True, features=(1.0,)),
    Alarm(step=3, causes=(Cause.CONFLICT,), onset=1),
    MendedJudge(
        judge=JudgeId("j-2"),
        incumbent=JudgeId("j-1"),
        num_attempts=1,
        num_pairs=1,
        num_conflict_pairs=1,
        fresh_attempts=1,
        fresh_conflicts_before=1,
        fresh_conflicts_after=0,
        fresh_wins=1,
        fresh_losses=0,
        num_anchors=1,
        anchors_right_before=1,
        anchors_right_after=1,
        anchors_wins=0,
        anchors_losses=0,
    ),
    JOB_RESULT,
    SCORE,
    EPISODE,
    REQUEST,
    Generation(output_ids=[1], logprobs=[-0.5], stop_reason=StopReason.LENGTH),
    Check(correct=True, partial=1.0),
    Pairing(PolicyId("p0"), HarnessId("h-1")),
    Serving(REF, HarnessId("h-1")),
    Capacity(num_items=1, num_jobs=1),
    ev.BatchDone(result=RESULT),
    ev.JobDone(result=JOB_RESULT),
    ev.WorkerLost(worker="w", reason="died", num_items=1),
    ev.Cancel(items=(ItemId(1),), reason="decided"),
    ev.Retire(uris=("weights/p0/v1",)),
    Pool.GATE,
    Purpose.TRAIN,
    RunConfig(run_dir=str(Path("run"))),
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_what_crosses_a_process_is_the_same_on_the_other_side(record: object, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(record, protocol))
    assert back == record
    assert type(back) is type(record)


@pytest.mark.parametrize("name", [REF, Pairing(PolicyId("p0"), HARNESS.id), Serving(REF, HARNESS.id)])
def test_names_are_the_same_key_on_the_other_side(name: object) -> None:
    assert {name: 1}[pickle.loads(pickle.dumps(name))] == 1


def test_a_harness_keeps_its_id_on_the_other_side() -> None:
    assert pickle.loads(pickle.dumps(HARNESS)).id == HARNESS.id


def test_errors_keep_what_they_say() -> None:
    error = pickle.loads(pickle.dumps(BoundaryError(Boundary.VERIFIER, "broke")))
    assert (error.boundary, error.message, str(error)) == (Boundary.VERIFIER, "broke", "verifier: broke")
    for kind in (ConfigError, ReplayMismatch):
        assert str(pickle.loads(pickle.dumps(kind("what and why")))) == "what and why"
