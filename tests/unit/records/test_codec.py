"""The codec: every journaled record comes back from JSON as it was, and a misfit is named."""

import json
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import pytest

from coharness.records import events as ev
from coharness.records.codec import decode, encode
from coharness.records.errors import Boundary
from coharness.records.harness import Harness, PromptGenes, TaskGene
from coharness.records.ids import HarnessId, ItemId, JobId, JudgeId, PolicyId, ProposalId, TaskId
from coharness.records.judging import Alarm, Cause, MendedJudge, Rung
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.task import TaskRef
from coharness.records.training import JobResult, JobStatus, MergeJob, RepairJob, TrainJob
from coharness.records.work import (
    Audit,
    BatchResult,
    Judging,
    Outcome,
    OutcomeStatus,
    Purpose,
    Serving,
    WorkBatch,
    WorkItem,
)

REF = VersionRef(PolicyId("p0"), 3)
WEIGHTS = WeightsRef(
    uri="weights/p0/v3", digest="d" * 64, kind=WeightsKind.LORA, num_bytes=7, has_optimizer=True, canary=-12.5
)
VERSION = PolicyVersion(ref=REF, weights=WEIGHTS, parents=(VersionRef(PolicyId("p0"), 2),), operator="train")
HARNESS = Harness(
    tasks=(TaskGene(family="count", level_low=1, level_high=4, weight=0.5),),
    prompt=PromptGenes(formats={"count": "trace", "sort": "plain"}),
)
ITEM = WorkItem(
    id=ItemId(4),
    version=REF,
    harness=HARNESS.id,
    task=TaskRef(family="count", level=2, seed=2**62, id=TaskId("ab")),
    format="trace",
    purpose=Purpose.GATE,
    seed=2**63 - 1,
    group_size=2,
    temperature=0.7,
    max_tokens=64,
    proposal=ProposalId(2),
    arm="challenger",
    pair=-3,
    judging=Judging(judge=JudgeId("j-1"), counts=False, audited=True),
)
SERVING = Serving(REF, HARNESS.id)
TRAIN = TrainJob(
    id=JobId(1),
    start=VERSION,
    step=4,
    hyperparameters={"learning_rate": 5e-4, "temperature": 1.0},
    items=(ItemId(1), ItemId(2)),
    borrowed=(ItemId(9),),
    seed=3,
)
MERGE = MergeJob(id=JobId(2), child=PolicyId("p3"), rule="linear", parents=(VERSION, VERSION), weights=(0.25, 0.75))
PROPOSAL = Proposal(
    id=ProposalId(2),
    kind=ProposalKind.PAIR,
    operator="challenge",
    challenger=SERVING,
    incumbent=replace(SERVING, harness=HarnessId("h-0")),
    test_index=1,
    families=("count",),
    manifest={"fitness": [0.5, 0.01], "edits": ["ü"], "final": True},
)
VERDICT = Verdict(
    proposal=ProposalId(2),
    kind=VerdictKind.REJECTED,
    reason="futile",
    wins=1,
    losses=2,
    ties=3,
    log_evalue=-0.5,
    level=0.06,
)
OUTCOMES = (
    Outcome(item=ItemId(4), status=OutcomeStatus.DONE, num_correct=1, scores=(0.1, 1.0), num_parsed=2, num_prompt_tokens=5),
    Outcome(item=ItemId(5), status=OutcomeStatus.FAILED, boundary=Boundary.VERIFIER, message="broke"),
    Outcome(item=ItemId(6), status=OutcomeStatus.CANCELLED),
    Outcome(item=ItemId(7), status=OutcomeStatus.DONE, audits=(Audit(judged=0.9, verified=False, features=(1.5, 0.0)),)),
)  # fmt: skip
ALARM = Alarm(step=9, causes=(Cause.CONFLICT, Cause.DIVERGENCE), onset=7, shortcut="length")
MENDED = MendedJudge(
    judge=JudgeId("j-2"), incumbent=JudgeId("j-1"), num_attempts=9, num_pairs=8, num_conflict_pairs=7, fresh_attempts=6,
    fresh_conflicts_before=5, fresh_conflicts_after=1, fresh_wins=4, fresh_losses=0, num_anchors=3, anchors_right_before=3,
    anchors_right_after=2, anchors_wins=0, anchors_losses=1,
)  # fmt: skip
RESULT = BatchResult(batch=7, worker="w0", outcomes=OUTCOMES, wall_s=0.125, cpu_s=0.0625)
JOB_RESULT = JobResult(
    job=JobId(1), status=JobStatus.DONE, version=VERSION, metrics={"loss/sft": 1.5}, num_rows=3, wall_s=1.0, cpu_s=0.5
)

DIRECTIVES: tuple[ev.Directive, ...] = (
    ev.Lease(items=(ITEM, replace(ITEM, proposal=None, judging=None)), harnesses=(HARNESS,)),
    ev.Cancel(items=(ItemId(3),), reason="decided"),
    ev.Train(job=TRAIN),
    ev.Merge(job=MERGE),
    ev.Clone(
        child=PolicyId("p4"), donor=REF, replaced=PolicyId("p1"), hyperparameters={"temperature": 0.9}, probability=0.95
    ),
    ev.Spawn(harness=HARNESS, slot=1, operator="levels", parents=(HARNESS.id,)),
    ev.Open(proposal=PROPOSAL, harness=HARNESS),
    ev.Decide(verdict=VERDICT),
    ev.Respond(step=9, alarm=ALARM, rung=Rung.REPAIR, judge=JudgeId("j-1"), findings=("content",)),
    ev.Respond(step=39, alarm=None, rung=Rung.WATCH, judge=JudgeId("j-1")),
    ev.Repair(job=RepairJob(id=JobId(3), judge=JudgeId("j-1"), items=(ItemId(4),), seed=5)),
    ev.Appoint(judge=JudgeId("j-2"), accepted=True, reason="fewer conflicts"),
    ev.Retire(uris=("weights/p0/v1",)),
    ev.Finish(reason="the time is up"),
)
OTHERS: tuple[ev.Event, ...] = (
    ev.Started(run_id="r", seed=1, config={"a": {"b": [1, 2.5, None, "ü"]}}, base=WEIGHTS, code_digest="c"),
    ev.Resumed(epoch=2),
    ev.Tick(elapsed_s=1.5, cpu_s=0.25),
    ev.Asked(capacity=ev.Capacity(num_items=64, num_jobs=1)),
    ev.Issued(directive=DIRECTIVES[0]),
    ev.BatchDone(result=RESULT),
    ev.JobDone(result=JOB_RESULT),
    ev.JobDone(result=JobResult(job=JobId(3), status=JobStatus.DONE, mended=MENDED)),
    ev.JobDone(result=JobResult(job=JobId(2), status=JobStatus.FAILED, boundary=Boundary.WEIGHTS, message="gone")),
    ev.WorkerLost(worker="w0", reason="died", num_items=3),
    ev.StopRequested(reason="a person asked"),
)
EVENTS: tuple[ev.Event, ...] = (*OTHERS, *(ev.Issued(directive=directive) for directive in DIRECTIVES))


def through_json(kind: Any, value: Any) -> Any:
    return decode(kind, json.loads(json.dumps(encode(kind, value), allow_nan=False)))


def test_there_is_an_example_of_every_event_and_directive() -> None:
    assert {type(directive) for directive in DIRECTIVES} == set(get_args(ev.Directive))
    assert {type(event) for event in OTHERS} == set(get_args(ev.Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(getattr(e, "directive", e)).__name__)
def test_every_event_comes_back_from_json(event: ev.Event) -> None:
    back = through_json(ev.Event, event)
    assert back == event
    assert type(back) is type(event)


def test_a_mapping_with_record_keys_comes_back() -> None:
    batch = WorkBatch(id=1, items=(ITEM,), harnesses={HARNESS.id: HARNESS}, weights={REF: WEIGHTS}, lease_s=60.0)
    assert through_json(WorkBatch, batch) == batch


def test_enums_are_enums_again_and_tuples_are_tuples() -> None:
    item = through_json(WorkItem, ITEM)
    assert item.purpose is Purpose.GATE
    result = through_json(BatchResult, RESULT)
    assert isinstance(result.outcomes, tuple)
    assert result.outcomes[1].boundary is Boundary.VERIFIER


def test_a_record_is_written_as_its_fields_in_order() -> None:
    assert encode(ev.Tick, OTHERS[2]) == [1.5, 0.25]
    assert encode(ev.Event, OTHERS[2]) == ["Tick", [1.5, 0.25]]


def test_a_record_with_other_fields_is_refused_by_name() -> None:
    names = ", ".join(field.name for field in fields(WorkItem))
    with pytest.raises(ValueError, match=f"WorkItem has the {len(fields(WorkItem))} fields {names}, got 2 values"):
        decode(WorkItem, [1, 2])
    with pytest.raises(ValueError, match=r"WorkItem has the .* got dict"):
        decode(WorkItem, {"id": 1})


def test_an_unknown_member_of_a_union_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown record 'Nonsense'; expected one of .*Asked.*WorkerLost"):
        decode(ev.Event, ["Nonsense", []])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Every shape of a field that the codec knows."""

    pair: tuple[int, str]
    pairs: tuple[tuple[int, float], ...]
    listed: list[Purpose]
    maybe: ItemId | None
    either: ev.Tick | ev.Resumed | None
    named: dict[str, Purpose]


@pytest.mark.parametrize(
    "value",
    [
        Shapes(pair=(1, "a"), pairs=(), listed=[], maybe=None, either=None, named={}),
        Shapes(
            pair=(0, ""),
            pairs=((1, 0.5), (2, 1.5)),
            listed=[Purpose.FILL],
            maybe=ItemId(0),
            either=ev.Resumed(epoch=3),
            named={"x": Purpose.RACE},
        ),
    ],
)
def test_every_shape_of_a_field_comes_back(value: Shapes) -> None:
    assert through_json(Shapes, value) == value
