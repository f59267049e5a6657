"""Workers of one role: started, given leases, replaced when they die, hang or never start. No ray of its own.

A slot keeps its name over the lives of its worker. An actor runs its calls one after the other, so the first lease of a slot
is the one that runs, and its clock starts when the one before it ended: a lease that waits behind another is neither late
nor guilty when its worker dies.

    starting --ready--> ready --dies, or its first lease is late--> starting     (what it held is handed back)
       └--- does not start `max_starts` times in a row ---> closed

Driven by `actors.fleet`; `Worker` is the seam to Ray (`actors.workers`).
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from coharness.records.errors import Boundary, BoundaryError

_log = logging.getLogger(__name__)
W = TypeVar("W")
R = TypeVar("R")


class WorkerDied(Exception):
    """The worker's process is gone, with all calls that it had not answered."""


class Worker(Protocol):
    """One life of a worker: what the pool needs of an actor."""

    def ready(self) -> Any:
        """A reference that is done once the worker is built."""
        ...

    def run(self, work: Any) -> Any:
        """A reference that is done with the result of `work`."""
        ...

    def result(self, ref: Any) -> Any:
        """The value of a done reference.

        Raises:
            WorkerDied: the process went first.
            BoundaryError: the call failed.
        """
        ...

    def kill(self) -> None:
        """End the process at once."""
        ...


@dataclass(slots=True, kw_only=True)
class Lease(Generic[W]):
    """A unit of work on its way through a pool."""

    work: W
    lease_s: float
    num_items: int
    attempts: int = 0
    "Times it was begun and not ended."
    ref: Any = None
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Generic[W, R]):
    """A lease that its worker answered: with a result, or with the boundary that broke."""

    worker: str
    lease: Lease[W]
    result: R | None
    error: BoundaryError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Generic[W]):
    """A worker that was replaced; its first lease counts an attempt, the others never began."""

    worker: str
    boundary: Boundary
    reason: str
    leases: tuple[Lease[W], ...]


@dataclass(slots=True, kw_only=True)
class Slot(Generic[W]):
    """The place of one worker."""

    name: str
    worker: Worker | None = None
    "None once the slot is closed."
    ready_ref: Any = None
    "Set while the worker starts."
    since: float = 0.0
    num_failed_starts: int = 0
    leases: deque[Lease[W]] = field(default_factory=deque)


class Pool(Generic[W, R]):
    """`size` workers of one role, each with up to `depth` leases.

    Args:
        start: starts one worker by its name.
        start_s: a worker that is not ready by then is replaced.
        max_starts: failures to start in a row after which a slot is closed.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        depth: int,
        start: Callable[[str], Worker],
        start_s: float,
        max_starts: int,
        now: float,
    ) -> None:
        self._depth = depth
        self._start = start
        self._start_s = start_s
        self._max_starts = max_starts
        self._last_failure = ""
        self.slots: list[Slot[W]] = [Slot(name=name) for name in names]
        for slot in self.slots:
            self._begin(slot, now)

    @property
    def num_places(self) -> int:
        """Leases that it can hold at once."""
        return self._depth * sum(slot.worker is not None for slot in self.slots)

    @property
    def num_leases(self) -> int:
        """Leases that it holds."""
        return sum(len(slot.leases) for slot in self.slots)

    def free(self) -> list[Slot[W]]:
        """Slots that can take a lease now, the emptiest first."""
        ready = [s for s in self.slots if s.worker is not None and s.ready_ref is None and len(s.leases) < self._depth]
        return sorted(ready, key=lambda slot: len(slot.leases))

    def give(self, slot: Slot[W], lease: Lease[W], now: float) -> None:
        """Send a lease to the worker of a free slot."""
        assert slot.worker is not None, f"{slot.name} is closed"
        lease.ref = slot.worker.run(lease.work)
        lease.since = now
        slot.leases.append(lease)

    def refs(self) -> list[Any]:
        """What to wait for."""
        starting = [slot.ready_ref for slot in self.slots if slot.ready_ref is not None]
        return starting + [lease.ref for slot in self.slots for lease in slot.leases]

    def next_deadline(self) -> float | None:
        """When `step` should be called at the latest, None where nothing is awaited."""
        starting = [slot.since + self._start_s for slot in self.slots if slot.ready_ref is not None]
        running = [slot.leases[0].since + slot.leases[0].lease_s for slot in self.slots if slot.leases]
        return min(starting + running, default=None)

    def step(self, done: AbstractSet[Any], now: float) -> tuple[list[Ended[W, R]], list[Lost[W]]]:
        """Take in what is done, then take away what is late.

        Raises:
            BoundaryError: WORKER, where every slot is closed because no worker starts.
        """
        ended: list[Ended[W, R]] = []
        lost: list[Lost[W]] = []
        for slot in self.slots:
            try:
                self._collect(slot, done, now, ended)
            except WorkerDied as death:
                lost.append(self._replace(slot, Boundary.WORKER, f"died: {death}", now))
            if slot.ready_ref is not None and now - slot.since > self._start_s:
                lost.append(self._replace(slot, Boundary.WORKER, f"not ready after {self._start_s:.0f} s", now))
            elif slot.leases and now - slot.leases[0].since > slot.leases[0].lease_s:
                reason = f"no answer after its lease of {slot.leases[0].lease_s:g} s"
                lost.append(self._replace(slot, Boundary.DEADLINE, reason, now))
        if all(slot.worker is None for slot in self.slots):
            names = ", ".join(slot.name for slot in self.slots)
            raise BoundaryError(
                Boundary.WORKER,
                f"none of {names} started in {self._max_starts} attempts; the last one {self._last_failure}",
            )
        return ended, lost

    def _collect(self, slot: Slot[W], done: AbstractSet[Any], now: float, ended: list[Ended[W, R]]) -> None:
        worker = slot.worker
        if worker is None:
            return
        if slot.ready_ref is not None and slot.ready_ref in done:
            worker.result(slot.ready_ref)
            slot.ready_ref = None
            slot.num_failed_starts = 0
        while slot.leases and slot.leases[0].ref in done:
            lease = slot.leases[0]
            error: BoundaryError | None = None
            result: R | None = None
            try:
                result = worker.result(lease.ref)
            except BoundaryError as caught:
                error = caught
            slot.leases.popleft()
            ended.append(Ended(worker=slot.name, lease=lease, result=result, error=error))
            if slot.leases:
                slot.leases[0].since = now

    def _replace(self, slot: Slot[W], boundary: Boundary, reason: str, now: float) -> Lost[W]:
        assert slot.worker is not None, f"{slot.name} is closed"
        _log.warning("%s is replaced: %s", slot.name, reason)
        # What a worker still says after this is never looked at: its references are forgotten here.
        slot.worker.kill()
        leases = tuple(slot.leases)
        slot.leases.clear()
        if leases:
            leases[0].attempts += 1
        if slot.ready_ref is not None:
            slot.num_failed_starts += 1
            self._last_failure = reason
        slot.ready_ref = None
        if slot.num_failed_starts >= self._max_starts:
            _log.error("%s is closed: it did not start %d times in a row", slot.name, slot.num_failed_starts)
            slot.worker = None
        else:
            self._begin(slot, now)
        return Lost(worker=slot.name, boundary=boundary, reason=reason, leases=leases)

    def _begin(self, slot: Slot[W], now: float) -> None:
        slot.worker = self._start(slot.name)
        slot.ready_ref = slot.worker.ready()
        slot.since = now
