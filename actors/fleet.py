"""The Ray fleet: carries out commands with rollout, trainer and replay actors, and says what happened.

    submit ─► queue ─► Pool(rollout, 2 leases a worker) ──► BatchDone
           └► jobs  ─► Pool(trainer, 1 lease a worker)  ──► JobDone        WorkerLost beside, when one is replaced
           └► ReplayLink (retire)

Invariants: each leased item ends in exactly one BatchDone, each job in exactly one JobDone, whatever dies; a lease that was
taken away is forgotten, so a late answer to it cannot be counted. One thread, the engine's, calls all methods.
"""

import logging
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.options import ActorSpec, Deadlines, Factories, trainer_cores
from actors.replay import ReplayLink
from actors.slots import Lease, Lost, Pool, Slot
from actors.workers import Starter
from coharness.config.schema import RunConfig
from coharness.records.errors import Boundary
from coharness.records.events import BatchDone, Cancel, Capacity, Command, Event, JobDone, Retire, WorkerLost
from coharness.records.ids import ItemId, PolicyId
from coharness.records.training import Job, JobResult, JobStatus, MergeJob, RepairJob, TrainJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, WorkBatch

_log = logging.getLogger(__name__)
LEASES_A_WORKER = 2
"""One batch that runs and one that waits in the actor's own queue, so that a worker never idles between two."""
FLEET = "fleet"
"""The worker's name in results that no worker gave."""


class RayFleet:
    """A `coharness.records.protocols.Fleet` on the Ray session that is open.

    Args:
        run_dir: the run's folder, seen by every node.
        config: the run's config; `config.fleet` says how many workers, of how many threads, with which leases.
        epoch: the run's epoch, which every actor gets.
        coordinator: name of the actor that drives this fleet, which workers listen for; None in tests.
        factories: what the actors build.
        deadlines: how long anything is waited for.
    """

    def __init__(
        self,
        run_dir: Path,
        config: RunConfig,
        epoch: int,
        *,
        coordinator: str | None = None,
        factories: Factories | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._config = config.fleet
        deadlines = deadlines or Deadlines.of(config)
        spec = ActorSpec(
            name=FLEET,
            run_dir=str(run_dir),
            config=config.model_dump(mode="json"),
            epoch=epoch,
            factories=factories or Factories(),
            deadlines=deadlines,
            coordinator=coordinator,
        )
        self._starter = Starter(
            spec=spec,
            num_cpus=config.fleet.threads_per_worker,
            trainer_cpus=trainer_cores(config),
            record=Path(run_dir) / "logs" / "actors.json",
        )
        replay = self._starter.replay()
        self._replay = ReplayLink(replay, deadlines)
        now = time.monotonic()
        self._rollouts: Pool[WorkBatch, BatchResult] = Pool(
            [f"rollout-{n}" for n in range(config.fleet.rollout_workers)],
            depth=LEASES_A_WORKER,
            start=lambda name: self._starter.rollout(name, replay),
            start_s=deadlines.start_s,
            max_starts=config.fleet.max_attempts,
            now=now,
        )
        self._trainers: Pool[Job, JobResult] = Pool(
            [f"trainer-{n}" for n in range(config.fleet.trainers)],
            depth=1,
            start=lambda name: self._starter.trainer(name, replay),
            start_s=deadlines.start_s,
            max_starts=config.fleet.max_attempts,
            now=now,
        )
        self._batches: deque[Lease[WorkBatch]] = deque()
        self._jobs: deque[Lease[Job]] = deque()
        self._resident: dict[PolicyId, str] = {}
        "Policy -> the trainer that trained it last and may hold it in memory."
        self._events: list[Event] = []

    def capacity(self) -> Capacity:
        """Free places: batches of `fleet.batch_items` items, and jobs."""
        batches = self._rollouts.num_places - self._rollouts.num_leases - len(self._batches)
        jobs = self._trainers.num_places - self._trainers.num_leases - len(self._jobs)
        return Capacity(num_items=max(0, batches) * self._config.batch_items, num_jobs=max(0, jobs))

    def submit(self, commands: Sequence[Command]) -> None:
        """Begin to carry these out; what is over the capacity waits here."""
        for command in commands:
            match command:
                case WorkBatch():
                    self._batches.append(Lease(work=command, lease_s=command.lease_s, num_items=len(command.items)))
                case TrainJob() | MergeJob() | RepairJob():
                    self._jobs.append(Lease(work=command, lease_s=self._config.lease_s, num_items=0))
                case Cancel():
                    self._cancel(command)
                case Retire():
                    self._replay.retire(command.uris)
        self._dispatch(time.monotonic())

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits at most `timeout_s` for something to happen.

        Raises:
            BoundaryError: no worker of a role starts, or the replay actor is gone for good.
        """
        until = time.monotonic() + timeout_s
        while True:
            self._step(self._wait(0.0 if self._events else until - time.monotonic()))
            if self._events or time.monotonic() >= until:
                events, self._events = self._events, []
                return events

    def close(self, deadline_s: float) -> None:
        """End every actor by its handle; what was not ended has no outcome and is leased again by a resumed run."""
        left = self._starter.end_all(deadline_s)
        if left:
            _log.error("after %.0f s these actors are not known to be gone: %s", deadline_s, ", ".join(left))

    def _wait(self, timeout_s: float) -> frozenset[Any]:
        """References that are done; returns earlier where a deadline is due."""
        import ray

        deadlines = [self._rollouts.next_deadline(), self._trainers.next_deadline(), self._replay.next_deadline()]
        due = min(at for at in deadlines if at is not None)
        timeout_s = max(0.0, min(timeout_s, due - time.monotonic()))
        refs = self._rollouts.refs() + self._trainers.refs() + self._replay.refs()
        if not refs:
            time.sleep(timeout_s)
            return frozenset()
        done, rest = ray.wait(refs, num_returns=1, timeout=timeout_s)
        if done and rest:
            done += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return frozenset(done)

    def _step(self, done: frozenset[Any]) -> None:
        now = time.monotonic()
        batches, lost_batches = self._rollouts.step(done, now)
        jobs, lost_jobs = self._trainers.step(done, now)
        for batch in batches:
            if batch.result is not None:
                self._events.append(BatchDone(result=batch.result))
            elif batch.error is not None:
                batch.lease.attempts += 1
                self._again_batch(batch.lease, batch.worker, batch.error.boundary, batch.error.message)
        for job in jobs:
            if job.result is not None:
                self._events.append(JobDone(result=job.result))
            elif job.error is not None:
                job.lease.attempts += 1
                self._again_job(job.lease, job.error.boundary, job.error.message)
        for lost in lost_batches:
            self._say_lost(lost)
            for lease in reversed(lost.leases):
                self._again_batch(lease, lost.worker, lost.boundary, lost.reason)
        for lost_job in lost_jobs:
            self._say_lost(lost_job)
            for held in lost_job.leases:
                self._again_job(held, lost_job.boundary, lost_job.reason)
        self._events.extend(self._replay.step(done, now))
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        while self._batches and (free := self._rollouts.free()):
            self._rollouts.give(free[0], self._batches.popleft(), now)
        while self._jobs and (idle := self._trainers.free()):
            lease, slot = self._match(idle)
            self._jobs.remove(lease)
            if isinstance(lease.work, TrainJob):
                self._resident[lease.work.policy] = slot.name
            self._trainers.give(slot, lease, now)

    def _match(self, idle: list[Slot[Job]]) -> tuple[Lease[Job], Slot[Job]]:
        """The oldest job whose member an idle trainer holds; else the oldest job, so that no trainer idles."""
        by_name = {slot.name: slot for slot in idle}
        for lease in self._jobs:
            if isinstance(lease.work, TrainJob) and (name := self._resident.get(lease.work.policy)) in by_name:
                return lease, by_name[str(name)]
        return self._jobs[0], idle[0]

    def _cancel(self, command: Cancel) -> None:
        unwanted = set(command.items)
        kept: deque[Lease[WorkBatch]] = deque()
        for lease in self._batches:
            batch = lease.work
            dropped = tuple(item.id for item in batch.items if item.id in unwanted)
            if dropped:
                self._say_ended(batch.id, FLEET, dropped, OutcomeStatus.CANCELLED, None, command.reason)
                lease.work = _without(batch, unwanted)
                lease.num_items = len(lease.work.items)
            if lease.num_items:
                kept.append(lease)
        self._batches = kept

    def _again_batch(self, lease: Lease[WorkBatch], worker: str, boundary: Boundary, reason: str) -> None:
        if lease.attempts < self._config.max_attempts:
            self._batches.appendleft(lease)
            return
        items = tuple(item.id for item in lease.work.items)
        message = f"given up after {lease.attempts} attempts; in the last one {worker}: {reason}"
        self._say_ended(lease.work.id, worker, items, OutcomeStatus.FAILED, boundary, message)

    def _again_job(self, lease: Lease[Job], boundary: Boundary, reason: str) -> None:
        if lease.attempts < self._config.max_attempts:
            self._jobs.appendleft(lease)
            return
        message = f"given up after {lease.attempts} attempts; in the last one: {reason}"
        result = JobResult(job=lease.work.id, status=JobStatus.FAILED, boundary=boundary, message=message)
        self._events.append(JobDone(result=result))

    def _say_lost(self, lost: Lost[Any]) -> None:
        num_items = sum(lease.num_items for lease in lost.leases)
        self._events.append(WorkerLost(worker=lost.worker, reason=lost.reason, num_items=num_items))

    def _say_ended(
        self,
        batch: int,
        worker: str,
        items: tuple[ItemId, ...],
        status: OutcomeStatus,
        boundary: Boundary | None,
        message: str,
    ) -> None:
        outcomes = tuple(Outcome(item=i, status=status, boundary=boundary, message=message) for i in items)
        self._events.append(
            BatchDone(result=BatchResult(batch=batch, worker=worker, outcomes=outcomes, wall_s=0.0, cpu_s=0.0))
        )


def _without(batch: WorkBatch, unwanted: set[ItemId]) -> WorkBatch:
    return WorkBatch(
        id=batch.id,
        items=tuple(item for item in batch.items if item.id not in unwanted),
        harnesses=batch.harnesses,
        weights=batch.weights,
        lease_s=batch.lease_s,
    )
