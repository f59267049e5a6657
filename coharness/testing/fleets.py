"""Conformance suite of fleets: what every fleet owes the engine, whatever carries the work out.

A fleet's test builds a `FleetCase` around a fleet whose workers are the doubles of `fleet_doubles`, and runs each check of
`FLEET_CHECKS` on it, and of `PROCESS_FLEET_CHECKS` where its workers are processes that can die. Checks take their ids from the
case and leave the fleet idle, so one fleet may serve them all: it has to survive each of them anyway.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from coharness.config.schema import RunConfig
from coharness.records.errors import Boundary
from coharness.records.events import BatchDone, Cancel, JobDone, Retire, WorkerLost
from coharness.records.harness import Harness, TaskGene
from coharness.records.ids import ItemId, JobId, PolicyId, TaskId
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.protocols import Fleet
from coharness.records.task import TaskRef
from coharness.records.training import Job, JobResult, JobStatus, MergeJob, TrainJob
from coharness.records.work import Outcome, OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.testing import fleet_doubles

WAIT_S: Final = 60.0
"""Deadline of every wait; a sound fleet needs a small part of it."""
_HARNESS: Final = Harness(tasks=(TaskGene(family="reverse", level_low=1, level_high=1, weight=1.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCase:
    """One fleet under test."""

    fleet: Fleet
    run_dir: Path
    config: RunConfig
    ids: Iterator[int]
    "Numbers that no other check of this fleet has used."


@dataclass(slots=True)
class Seen:
    """What a fleet said, in order."""

    outcomes: dict[ItemId, list[Outcome]] = field(default_factory=dict)
    jobs: dict[JobId, list[JobResult]] = field(default_factory=dict)
    lost: list[WorkerLost] = field(default_factory=list)

    def statuses(self, batch: WorkBatch) -> list[OutcomeStatus]:
        """How the items of a batch ended, each once."""
        for item in batch.items:
            got = len(self.outcomes.get(item.id, []))
            assert got == 1, f"item {item.id} ended {got} times, expected once"
        return [self.outcomes[item.id][0].status for item in batch.items]

    def job(self, job: Job) -> JobResult:
        """How a job ended, once."""
        results = self.jobs.get(job.id, [])
        assert len(results) == 1, f"job {job.id} ended {len(results)} times, expected once"
        return results[0]


def make_batch(
    ids: Iterator[int], scripts: Sequence[str], *, lease_s: float = WAIT_S, group_size: int = 1
) -> WorkBatch:
    """A batch whose items do what `fleet_doubles` says of their scripts."""
    items = []
    for script in scripts:
        number = next(ids)
        items.append(
            WorkItem(
                id=ItemId(number),
                version=VersionRef(PolicyId("p0"), 0),
                harness=_HARNESS.id,
                task=TaskRef(family="reverse", level=1, seed=number, id=TaskId(f"{number:016x}")),
                format=script,
                purpose=Purpose.TRAIN,
                seed=number,
                group_size=group_size,
                temperature=1.0,
                max_tokens=8,
            )
        )
    return WorkBatch(
        id=next(ids),
        items=tuple(items),
        harnesses={_HARNESS.id: _HARNESS},
        weights={VersionRef(PolicyId("p0"), 0): fleet_doubles.BASE},
        lease_s=lease_s,
    )


def make_job(
    case: FleetCase, policy: str, batches: Sequence[WorkBatch] = (), *, script: Mapping[str, float] | None = None
) -> TrainJob:
    """A job on the groups of these batches; `script` as in `fleet_doubles.JOB_SCRIPTS`."""
    ref = VersionRef(PolicyId(policy), 0)
    return TrainJob(
        id=JobId(next(case.ids)),
        start=PolicyVersion(ref=ref, weights=fleet_doubles.BASE, parents=(), operator="base"),
        step=1,
        hyperparameters=script or {},
        items=tuple(item.id for batch in batches for item in batch.items),
        borrowed=(),
        seed=0,
    )


def collect(case: FleetCase, batches: Sequence[WorkBatch], jobs: Sequence[Job] = (), seen: Seen | None = None) -> Seen:
    """Poll until these have ended, and a little longer, so that what ends twice is seen to."""
    seen = Seen() if seen is None else seen
    items = {item.id for batch in batches for item in batch.items}
    ids = {job.id for job in jobs}
    until = time.monotonic() + WAIT_S
    while items - seen.outcomes.keys() or ids - seen.jobs.keys():
        assert time.monotonic() < until, (
            f"after {WAIT_S:.0f} s items {sorted(items - seen.outcomes.keys())} and jobs {sorted(ids - seen.jobs.keys())} "
            "have not ended"
        )
        _take(case, 0.5, seen)
    _take(case, 0.05, seen)
    return seen


def _take(case: FleetCase, timeout_s: float, seen: Seen) -> None:
    for event in case.fleet.poll(timeout_s):
        match event:
            case BatchDone():
                for outcome in event.result.outcomes:
                    seen.outcomes.setdefault(outcome.item, []).append(outcome)
            case JobDone():
                seen.jobs.setdefault(event.result.job, []).append(event.result)
            case WorkerLost():
                seen.lost.append(event)
            case _:
                raise AssertionError(f"a fleet says BatchDone, JobDone and WorkerLost, got {type(event).__name__}")


def _wait_for_mark(case: FleetCase, name: str, seen: Seen) -> int:
    """The process id in the first mark of this name."""
    until = time.monotonic() + WAIT_S
    while not (found := fleet_doubles.marks(case.run_dir, name)):
        assert time.monotonic() < until, f"after {WAIT_S:.0f} s there is no mark {name}"
        _take(case, 0.05, seen)
    return int(found[-1].read_text())


# Every fleet --------------------------------------------------------------------------------------------------------


def check_each_item_ends_once_as_its_worker_says(case: FleetCase) -> None:
    """Done and failed items side by side."""
    batches = [make_batch(case.ids, ["ok", "do:fail", "ok"]) for _ in range(3)]
    case.fleet.submit(batches)
    seen = collect(case, batches)
    for batch in batches:
        assert seen.statuses(batch) == [OutcomeStatus.DONE, OutcomeStatus.FAILED, OutcomeStatus.DONE]
        assert seen.outcomes[batch.items[1].id][0].boundary is Boundary.VERIFIER
    assert not seen.lost


def check_work_over_the_capacity_waits_and_none_is_lost(case: FleetCase) -> None:
    """Never refused; the capacity says 0 while more waits than fits, and comes back."""
    before = case.fleet.capacity()
    assert before.num_items > 0
    assert before.num_jobs > 0
    batches = [
        make_batch(case.ids, ["ok"] * 2) for _ in range(3 * before.num_items // case.config.fleet.batch_items + 3)
    ]
    jobs = [make_job(case, f"p{n}") for n in range(before.num_jobs + 2)]
    case.fleet.submit([*batches, *jobs])
    assert case.fleet.capacity().num_items == 0
    assert case.fleet.capacity().num_jobs == 0
    seen = collect(case, batches, jobs)
    assert all(set(seen.statuses(batch)) == {OutcomeStatus.DONE} for batch in batches)
    assert all(seen.job(job).status is JobStatus.DONE for job in jobs)
    assert case.fleet.capacity() == before


def check_cancelled_items_end_once_as_cancelled(case: FleetCase) -> None:
    """What was not begun is dropped, its batch mates are not."""
    places = case.fleet.capacity().num_items // case.config.fleet.batch_items
    held = [make_batch(case.ids, ["do:hold"]) for _ in range(places)]
    waiting, gone = make_batch(case.ids, ["ok"] * 3), make_batch(case.ids, ["ok"] * 2)
    case.fleet.submit([*held, waiting, gone])
    unwanted = (waiting.items[1].id, *(item.id for item in gone.items))
    case.fleet.submit([Cancel(items=unwanted, reason="its proposal was decided")])
    fleet_doubles.release(case.run_dir, [batch.items[0].id for batch in held])
    seen = collect(case, [*held, waiting, gone])
    assert seen.statuses(waiting) == [OutcomeStatus.DONE, OutcomeStatus.CANCELLED, OutcomeStatus.DONE]
    assert set(seen.statuses(gone)) == {OutcomeStatus.CANCELLED}
    assert all(seen.statuses(batch) == [OutcomeStatus.DONE] for batch in held)
    for item in unwanted:
        assert not fleet_doubles.marks(case.run_dir, f"began-{item}"), f"item {item} was cancelled and ran all the same"


def check_cancelling_what_has_ended_changes_nothing(case: FleetCase) -> None:
    """An item has one end, whatever is said of it later."""
    batch = make_batch(case.ids, ["ok"])
    case.fleet.submit([batch])
    seen = collect(case, [batch])
    case.fleet.submit([Cancel(items=(batch.items[0].id, ItemId(next(case.ids))), reason="too late")])
    collect(case, [batch], seen=seen)
    assert seen.statuses(batch) == [OutcomeStatus.DONE]


def check_a_job_finds_the_episodes_of_the_items_before_it(case: FleetCase) -> None:
    """An outcome is only said once its episodes can be fetched."""
    batches = [make_batch(case.ids, ["ok"] * 4, group_size=2) for _ in range(2)]
    case.fleet.submit(batches)
    collect(case, batches)
    job = make_job(case, "p0", batches)
    case.fleet.submit([job])
    result = collect(case, [], [job]).job(job)
    assert result.status is JobStatus.DONE, result.message
    assert result.num_rows == 16


def check_a_failed_job_comes_back_as_failed(case: FleetCase) -> None:
    """With its boundary; a merge is a job like any other."""
    failing = make_job(case, "p0", script={"fail": 1.0})
    merge = MergeJob(id=JobId(next(case.ids)), child=PolicyId("p9"), rule="linear", parents=(), weights=())
    case.fleet.submit([failing, merge])
    seen = collect(case, [], [failing, merge])
    assert (seen.job(failing).status, seen.job(failing).boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    version = seen.job(merge).version
    assert version is not None
    assert version.ref == VersionRef(PolicyId("p9"), 0)


def check_a_worker_that_breaks_fails_its_batch_alone(case: FleetCase) -> None:
    """What escapes a worker is a failure of its items, never of the run."""
    broken, sound = make_batch(case.ids, ["ok", "do:raise"]), make_batch(case.ids, ["ok"])
    case.fleet.submit([broken, sound])
    seen = collect(case, [broken, sound])
    assert set(seen.statuses(broken)) == {OutcomeStatus.FAILED}
    outcome = seen.outcomes[broken.items[0].id][0]
    assert outcome.boundary is Boundary.WORKER
    assert "scripted to break" in outcome.message
    assert seen.statuses(sound) == [OutcomeStatus.DONE]


def check_retired_weights_are_deleted(case: FleetCase) -> None:
    """And one that is gone already is no error."""
    folder = case.run_dir / "weights" / "p0" / "v1"
    folder.mkdir(parents=True)
    case.fleet.submit([Retire(uris=("weights/p0/v1", "weights/p0/v0"))])
    until = time.monotonic() + WAIT_S
    while folder.exists():
        assert time.monotonic() < until, f"{folder} was retired and is still there"
        case.fleet.poll(0.05)


def check_polling_an_idle_fleet_returns_in_time(case: FleetCase) -> None:
    """Nothing happens, nobody waits."""
    started = time.monotonic()
    assert case.fleet.poll(0.2) == []
    assert time.monotonic() - started < 5.0


# Fleets of processes ------------------------------------------------------------------------------------------------


def check_the_work_of_a_killed_worker_is_done_all_the_same(case: FleetCase) -> None:
    """What it held behind the running batch, too; the loss is told once."""
    places = case.fleet.capacity().num_items // case.config.fleet.batch_items
    hit = make_batch(case.ids, ["ok", "do:once:hang", "ok"])
    others = [make_batch(case.ids, ["ok"] * 2) for _ in range(places + 1)]
    seen = Seen()
    case.fleet.submit([hit, *others])
    _wait_for_mark(case, f"began-{hit.items[1].id}", seen)
    os.kill(_wait_for_mark(case, f"began-{hit.items[1].id}", seen), signal.SIGKILL)
    collect(case, [hit, *others], seen=seen)
    assert all(set(seen.statuses(batch)) == {OutcomeStatus.DONE} for batch in [hit, *others])
    assert len(seen.lost) == 1
    assert seen.lost[0].num_items >= 3
    job = make_job(case, "p0", [hit])
    case.fleet.submit([job])
    assert collect(case, [], [job]).job(job).num_rows == 3


def check_a_hung_worker_is_taken_away_after_its_lease(case: FleetCase) -> None:
    """And its batch is leased again."""
    hung, other = make_batch(case.ids, ["do:once:hang"], lease_s=1.0), make_batch(case.ids, ["ok"])
    case.fleet.submit([hung, other])
    seen = collect(case, [hung, other])
    assert seen.statuses(hung) == seen.statuses(other) == [OutcomeStatus.DONE]
    assert [lost.reason for lost in seen.lost] == ["no answer after its lease of 1 s"]


def check_what_kills_every_worker_ends_as_failed(case: FleetCase) -> None:
    """After `fleet.max_attempts` leases; what waited behind it is innocent."""
    deadly = make_batch(case.ids, ["do:die", "ok"])
    others = [make_batch(case.ids, ["ok"]) for _ in range(4)]
    case.fleet.submit([deadly, *others])
    seen = collect(case, [deadly, *others])
    assert set(seen.statuses(deadly)) == {OutcomeStatus.FAILED}
    assert seen.outcomes[deadly.items[0].id][0].boundary is Boundary.WORKER
    assert len(fleet_doubles.marks(case.run_dir, f"began-{deadly.items[0].id}")) == case.config.fleet.max_attempts
    assert len(seen.lost) == case.config.fleet.max_attempts
    assert all(seen.statuses(batch) == [OutcomeStatus.DONE] for batch in others)


def check_what_hangs_every_worker_ends_as_failed_by_its_deadline(case: FleetCase) -> None:
    """Never waited for without end."""
    batch = make_batch(case.ids, ["do:hang"], lease_s=0.5)
    case.fleet.submit([batch])
    seen = collect(case, [batch])
    assert seen.statuses(batch) == [OutcomeStatus.FAILED]
    assert seen.outcomes[batch.items[0].id][0].boundary is Boundary.DEADLINE


def check_the_job_of_a_dead_or_hung_trainer_is_run_again(case: FleetCase) -> None:
    """A job that breaks in every one ends as failed."""
    dies_once, hangs_once = make_job(case, "p1", script={"die": 0.5}), make_job(case, "p2", script={"hang": 0.5})
    broken = make_job(case, "p3", script={"raise": 1.0})
    jobs = [dies_once, hangs_once, broken]
    case.fleet.submit(jobs)
    seen = collect(case, [], jobs)
    assert seen.job(dies_once).status is seen.job(hangs_once).status is JobStatus.DONE
    assert (seen.job(broken).status, seen.job(broken).boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    assert len(seen.lost) == 2


def check_a_member_stays_with_its_trainer(case: FleetCase) -> None:
    """Whose memory holds it; members that train at once go to different ones."""
    first = [make_job(case, policy, script={"hold": 1.0}) for policy in ("p5", "p6")]
    seen = Seen()
    case.fleet.submit(first)
    pids = {job.policy: _wait_for_mark(case, f"job-{job.id}", seen) for job in first}
    fleet_doubles.release(case.run_dir, [job.id for job in first])
    collect(case, [], first, seen)
    assert len(set(pids.values())) == 2
    for order in (first[::-1], first, first[1:], first[:1]):
        jobs = [make_job(case, job.policy) for job in order]
        case.fleet.submit(jobs)
        collect(case, [], jobs, seen)
        assert {job.policy: seen.job(job).metrics["double/pid"] for job in jobs} == {
            job.policy: pids[job.policy] for job in jobs
        }


def check_the_store_survives_its_process(case: FleetCase) -> None:
    """What was acknowledged before is there after; appends that meet the restart arrive once."""
    before = make_batch(case.ids, ["ok"] * 2)
    case.fleet.submit([before])
    seen = collect(case, [before])
    os.kill(_wait_for_mark(case, "store", seen), signal.SIGKILL)
    after = [make_batch(case.ids, ["ok"] * 2) for _ in range(4)]
    case.fleet.submit(after)
    collect(case, after, seen=seen)
    assert all(set(seen.statuses(batch)) == {OutcomeStatus.DONE} for batch in [before, *after])
    job = make_job(case, "p0", [before, *after])
    case.fleet.submit([job])
    result = collect(case, [], [job]).job(job)
    assert (result.status, result.num_rows) == (JobStatus.DONE, 10), result.message


Check = Callable[[FleetCase], None]
FLEET_CHECKS: Final[tuple[Check, ...]] = (
    check_each_item_ends_once_as_its_worker_says,
    check_work_over_the_capacity_waits_and_none_is_lost,
    check_cancelled_items_end_once_as_cancelled,
    check_cancelling_what_has_ended_changes_nothing,
    check_a_job_finds_the_episodes_of_the_items_before_it,
    check_a_failed_job_comes_back_as_failed,
    check_a_worker_that_breaks_fails_its_batch_alone,
    check_retired_weights_are_deleted,
    check_polling_an_idle_fleet_returns_in_time,
)
PROCESS_FLEET_CHECKS: Final[tuple[Check, ...]] = (
    check_the_work_of_a_killed_worker_is_done_all_the_same,
    check_a_hung_worker_is_taken_away_after_its_lease,
    check_what_kills_every_worker_ends_as_failed,
    check_what_hangs_every_worker_ends_as_failed_by_its_deadline,
    check_the_job_of_a_dead_or_hung_trainer_is_run_again,
    check_a_member_stays_with_its_trainer,
    check_the_store_survives_its_process,
)
