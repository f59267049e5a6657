"""The in-process fleet: the same port as the Ray fleet, one command at a time, in the order they were given.

For studies (a cell is one process with one thread, and its course depends on nothing but its seed) and for tests.
"""

from collections import deque
from collections.abc import Sequence

from coharness.loop.jobs import JobRunner
from coharness.loop.worker import failed_everywhere
from coharness.records import events as ev
from coharness.records.errors import Boundary, BoundaryError, boundary
from coharness.records.protocols import ReplayStore, RolloutWorker, WeightStore
from coharness.records.training import Job, MergeJob, RepairJob, TrainJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, WorkBatch

QUEUED_BATCHES = 2
"""Batches it asks for ahead, so that a decision is never more than two batches old."""


class LocalFleet:
    """Carries out commands when it is polled, one a call."""

    def __init__(
        self, worker: RolloutWorker, jobs: JobRunner, replay: ReplayStore, weights: WeightStore, batch_items: int
    ) -> None:
        self._worker = worker
        self._jobs = jobs
        self._replay = replay
        self._weights = weights
        self._batch_items = batch_items
        self._queue: deque[ev.Command] = deque()
        self._cancelled: set[int] = set()

    def capacity(self) -> ev.Capacity:
        """Room for a few batches and one job."""
        batches = sum(isinstance(c, WorkBatch) for c in self._queue)
        has_job = any(isinstance(c, Job) for c in self._queue)
        return ev.Capacity(num_items=max(QUEUED_BATCHES - batches, 0) * self._batch_items, num_jobs=int(not has_job))

    def submit(self, commands: Sequence[ev.Command]) -> None:
        """Queue commands."""
        for command in commands:
            if isinstance(command, ev.Cancel):
                self._cancelled.update(command.items)
            else:
                self._queue.append(command)

    def poll(self, timeout_s: float) -> list[ev.Event]:
        """Carry out the next command."""
        if not self._queue:
            return []
        command = self._queue.popleft()
        match command:
            case WorkBatch():
                return [ev.BatchDone(result=self._run_batch(command))]
            case TrainJob() | MergeJob() | RepairJob():
                return [ev.JobDone(result=self._jobs.run(command))]
            case ev.Retire():
                self._weights.retire(command.uris)
                return []
            case _:
                return []

    def close(self, deadline_s: float) -> None:
        """Nothing runs between two polls; what worker and trainer started is ended."""
        for part in (self._worker, self._jobs):
            close = getattr(part, "close", None)
            if close is not None:
                close()

    def _run_batch(self, batch: WorkBatch) -> BatchResult:
        kept = tuple(item for item in batch.items if item.id not in self._cancelled)
        dropped = tuple(
            Outcome(item=item.id, status=OutcomeStatus.CANCELLED) for item in batch.items if item.id in self._cancelled
        )
        self._cancelled.difference_update(o.item for o in dropped)
        if not kept:
            return BatchResult(batch=batch.id, worker="local", outcomes=dropped, wall_s=0.0, cpu_s=0.0)
        live = WorkBatch(
            id=batch.id, items=kept, harnesses=batch.harnesses, weights=batch.weights, lease_s=batch.lease_s
        )
        try:
            with boundary(Boundary.WORKER):
                result, table = self._worker.run(live)
            with boundary(Boundary.REPLAY):
                self._replay.append(table)
        except BoundaryError as error:
            outcomes = tuple(failed_everywhere(live, error.boundary, error.message))
            return BatchResult(batch=batch.id, worker="local", outcomes=dropped + outcomes, wall_s=0.0, cpu_s=0.0)
        return BatchResult(
            batch=result.batch,
            worker=result.worker,
            outcomes=dropped + result.outcomes,
            wall_s=result.wall_s,
            cpu_s=result.cpu_s,
        )
