"""A fleet whose workers take virtual time: what a slow worker, a long job or a queue costs, in a second and to the digit.

Outcomes come from a `SimulatedFleet`; this one says when. Every rollout worker has one batch that runs and one that waits, as
on Ray; every trainer has one job. `poll` moves the virtual clock to the next completion, so the engine's time is the fleet's.

    0 s      rollout-0 ├── batch 1 ──┤├── batch 3 ──┤          1 s an item / slowdown 1
             rollout-1 ├──────────── batch 2 ────────────┤                 slowdown 4
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from coharness.records import events as ev
from coharness.records.training import MergeJob, TrainJob
from coharness.records.work import WorkBatch
from coharness.testing.simulated import SimulatedFleet

LEASES_A_WORKER = 2


@dataclass(slots=True, kw_only=True)
class TimedWorker:
    """A worker and what it has done."""

    name: str
    seconds: float
    "That one unit of work takes it: an item, or a job."
    is_trainer: bool = False
    queue: deque[ev.Command] = field(default_factory=deque)
    "The first one runs."
    busy_s: float = 0.0
    num_units: int = 0


class TimedFleet:
    """A `Fleet` in virtual time; also the engine's clock."""

    def __init__(
        self,
        outcomes: SimulatedFleet,
        *,
        rollouts: Sequence[float],
        trainers: Sequence[float],
        batch_items: int = 64,
    ) -> None:
        """Start at virtual second 0.

        Args:
            outcomes: What is answered.
            rollouts: Seconds an item takes each rollout worker.
            trainers: Seconds a job takes each trainer.
            batch_items: Largest batch.
        """
        self._outcomes = outcomes
        self._batch_items = batch_items
        self.workers = [TimedWorker(name=f"rollout-{n}", seconds=s) for n, s in enumerate(rollouts)]
        self.workers += [TimedWorker(name=f"trainer-{n}", seconds=s, is_trainer=True) for n, s in enumerate(trainers)]
        self._waiting: dict[bool, deque[ev.Command]] = {False: deque(), True: deque()}
        self._ends: list[tuple[float, int]] = []
        "Heap of (virtual time, worker)."
        self._now = 0.0

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._now

    def cpu(self) -> float:
        """The core's own time is no part of the virtual one."""
        return 0.0

    def capacity(self) -> ev.Capacity:
        """Free places, as the Ray fleet counts them."""
        places = {False: 0, True: 0}
        for worker in self.workers:
            places[worker.is_trainer] += (1 if worker.is_trainer else LEASES_A_WORKER) - len(worker.queue)
        return ev.Capacity(
            num_items=max(places[False] - len(self._waiting[False]), 0) * self._batch_items,
            num_jobs=max(places[True] - len(self._waiting[True]), 0),
        )

    def submit(self, commands: Sequence[ev.Command]) -> None:
        """Give work to the workers; the rest costs no time."""
        for command in commands:
            match command:
                case WorkBatch():
                    self._waiting[False].append(command)
                case TrainJob() | MergeJob():
                    self._waiting[True].append(command)
                case _:
                    self._outcomes.submit([command])
                    self._outcomes.poll(0.0)
        self._dispatch()

    def poll(self, timeout_s: float) -> list[ev.Event]:
        """Go to the next completion, at most `timeout_s` virtual seconds ahead."""
        if not self._ends or self._ends[0][0] > self._now + timeout_s:
            self._now += timeout_s
            return []
        self._now, index = heapq.heappop(self._ends)
        worker = self.workers[index]
        command = worker.queue.popleft()
        worker.busy_s += worker.seconds * _units(command)
        worker.num_units += _units(command)
        if worker.queue:
            self._begin(index)
        self._outcomes.submit([command])
        events = self._outcomes.poll(0.0)
        self._dispatch()
        return events

    def close(self, deadline_s: float) -> None:
        """Nothing to end."""
        self._outcomes.close(deadline_s)

    def _dispatch(self) -> None:
        for is_trainer, waiting in self._waiting.items():
            depth = 1 if is_trainer else LEASES_A_WORKER
            while waiting:
                free = [i for i, w in enumerate(self.workers) if w.is_trainer == is_trainer and len(w.queue) < depth]
                if not free:
                    break
                index = min(free, key=lambda i: len(self.workers[i].queue))
                self.workers[index].queue.append(waiting.popleft())
                if len(self.workers[index].queue) == 1:
                    self._begin(index)

    def _begin(self, index: int) -> None:
        worker = self.workers[index]
        heapq.heappush(self._ends, (self._now + worker.seconds * _units(worker.queue[0]), index))


def _units(command: ev.Command) -> int:
    return len(command.items) if isinstance(command, WorkBatch) else 1
