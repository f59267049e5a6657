"""The replay actor, which owns the episodes and the retirement of weights, and the two ends that talk to it.

    RolloutActor --append--> ReplayActor --> replay/ segments        (RemoteReplayStore: calls with deadlines)
    TrainerActor --fetch---> ReplayActor
    RayFleet ----retire----> ReplayActor --> weights/                (ReplayLink: watches it, never blocks)

Ray restarts the actor when it dies; the new one rebuilds its index from the segments. Calls may then be repeated: an append
that arrives twice is ignored by item, a fetch and a retirement change nothing the second time.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from actors.options import ActorSpec, Deadlines, log_to, resolve
from actors.watchdog import Watchdog
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.events import WorkerLost
from coharness.records.ids import ItemId
from coharness.records.protocols import ReplayStore, WeightStore

_log = logging.getLogger(__name__)


class ReplayActor:
    """The store's process."""

    def __init__(self, spec: ActorSpec) -> None:
        log_to(spec.path, spec.name)
        self._watchdog = Watchdog(spec)
        self._store: ReplayStore = resolve(spec.factories.replay)(spec.path, spec.epoch)
        self._weights: WeightStore = resolve(spec.factories.weights)(spec.path)

    def ready(self) -> None:
        """Answered once the store is open; also the ping."""
        self._watchdog.heard()

    def append(self, episodes: pa.Buffer) -> None:
        """Keep episodes (an Arrow IPC stream); answered once they are on disk."""
        self._store.append(_from_ipc(episodes))

    def fetch(self, items: Sequence[ItemId]) -> pa.Buffer:
        """All episodes of these items, as an Arrow IPC stream."""
        return _to_ipc(self._store.fetch(items))

    def retire(self, uris: Sequence[str]) -> None:
        """Delete weights that the core no longer needs."""
        self._watchdog.heard()
        self._weights.retire(uris)


class RemoteReplayStore:
    """A ReplayStore over the replay actor's handle: repeats a call that a restart cut off, until the deadline."""

    def __init__(self, actor: Any, deadline_s: float) -> None:
        self._actor = actor
        self._deadline_s = deadline_s

    def append(self, table: pa.Table) -> None:
        """Keep episodes; returns once they are on disk.

        Raises:
            BoundaryError: REPLAY, where the actor does not answer in time or refused them.
        """
        self._call(self._actor.append, _to_ipc(table))

    def fetch(self, items: Sequence[ItemId]) -> pa.Table:
        """All episodes of these items.

        Raises:
            KeyError: an item is not in the store.
            BoundaryError: REPLAY, where the actor does not answer in time.
        """
        return _from_ipc(self._call(self._actor.fetch, list(items)))

    def _call(self, method: Any, argument: Any) -> Any:
        import ray

        until = time.monotonic() + self._deadline_s
        while True:
            try:
                return ray.get(method.remote(argument), timeout=max(0.0, until - time.monotonic()))
            except ray.exceptions.ActorUnavailableError as error:
                # The actor is being restarted; a call made now waits in its queue until it is there.
                last = first_line(error)
                time.sleep(min(0.1, self._deadline_s))
            except ray.exceptions.GetTimeoutError:
                last = "no answer"
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, (BoundaryError, KeyError)):
                    raise error.cause from None
                raise BoundaryError(Boundary.REPLAY, f"the replay actor failed: {error.cause!r}") from None
            except ray.exceptions.RayActorError as error:
                raise BoundaryError(Boundary.REPLAY, f"the replay actor is gone for good: {error}") from None
            if time.monotonic() >= until:
                raise BoundaryError(
                    Boundary.REPLAY, f"the replay actor did not answer within {self._deadline_s:.0f} s: {last}"
                )


class ReplayLink:
    """The fleet's end: pings the actor, has it restarted when it hangs, passes retirements on. Never blocks."""

    def __init__(self, actor: Any, deadlines: Deadlines) -> None:
        self.actor = actor
        self._deadlines = deadlines
        self._ping: Any = actor.ready.remote()
        self._pinged = time.monotonic()
        # Before the first answer the store may be indexing what an earlier life has written.
        self._answer_s = deadlines.start_s
        self._retiring: dict[Any, tuple[str, ...]] = {}

    def retire(self, uris: tuple[str, ...]) -> None:
        """Pass a retirement on."""
        self._retiring[self.actor.retire.remote(uris)] = uris

    def refs(self) -> list[Any]:
        """What to wait for."""
        return [*([] if self._ping is None else [self._ping]), *self._retiring]

    def next_deadline(self) -> float:
        """When `step` should be called at the latest, on the monotonic clock."""
        return self._pinged + (self._deadlines.ping_every_s if self._ping is None else self._answer_s)

    def step(self, done: Iterable[Any], now: float) -> list[WorkerLost]:
        """Take answers in, ping again where it is time.

        Raises:
            BoundaryError: REPLAY, where the actor is gone for good; the run cannot go on without its store.
        """
        lost: list[WorkerLost] = []
        for ref in done:
            if ref == self._ping:
                self._ping = None
                died = self._died(ref)
                self._answer_s = self._deadlines.start_s if died else self._deadlines.ping_s
                if died:
                    lost.append(WorkerLost(worker="replay", reason=f"died: {died}", num_items=0))
            elif ref in self._retiring:
                uris = self._retiring.pop(ref)
                if self._died(ref):
                    self.retire(uris)
        if self._ping is not None and now - self._pinged > self._answer_s:
            lost.append(self._restart(now))
        if self._ping is None and (lost or now - self._pinged >= self._deadlines.ping_every_s):
            self._ping, self._pinged = self.actor.ready.remote(), now
        return lost

    def _died(self, ref: Any) -> str:
        """Why the call was cut off by a restart, empty where it was answered."""
        import ray

        try:
            ray.get(ref)
        except ray.exceptions.ActorUnavailableError as error:
            _log.warning("the replay actor is restarted from its segments: %s", error)
            return first_line(error)
        except ray.exceptions.RayActorError as error:
            raise BoundaryError(Boundary.REPLAY, f"the replay actor is gone for good: {error}") from error
        except ray.exceptions.RayTaskError as error:
            _log.error("the replay actor could not delete weights, their folders stay: %s", error.cause)
        return ""

    def _restart(self, now: float) -> WorkerLost:
        import ray

        silent_s = now - self._pinged
        _log.warning("the replay actor has not answered for %.0f s and is restarted from its segments", silent_s)
        ray.kill(self.actor, no_restart=False)
        self._ping, self._answer_s = None, self._deadlines.start_s
        return WorkerLost(worker="replay", reason=f"no answer for {silent_s:.0f} s", num_items=0)


def _to_ipc(table: pa.Table) -> pa.Buffer:
    """A table as one buffer; Ray's own way for tables takes every column through Python and costs several times as much."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _from_ipc(buffer: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(buffer).read_all()


def first_line(error: BaseException) -> str:
    """The first line of an error's message that says something; Ray's messages are long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
