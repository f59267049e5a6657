"""The engine: carries the core's decisions to a fleet and what happens back to the core.

    fleet.poll ──► events ──► tell ──► ask ──► directives ──► journal (fsync) ──► fleet.submit

Invariant: a frame is durable before its effects. Whatever is in the journal can be folded again; what was submitted but not
answered when the process died is submitted again by `resume`. The engine decides nothing: it neither filters nor reorders.
"""

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coharness.loop.clock import Clock
from coharness.loop.core import Evolution
from coharness.loop.journal import JournalWriter
from coharness.loop.run_dir import RunDir
from coharness.loop.state import state_digest
from coharness.loop.status import status_of
from coharness.records import events as ev
from coharness.records.protocols import Fleet
from coharness.records.work import WorkBatch, WorkItem

log = logging.getLogger(__name__)

POLL_S = 0.5
TICK_S = 1.0
STATUS_S = 0.5
MAX_FRAME_EVENTS = 256
DRAIN_S = 60.0
"""A drain that takes longer is ended; what ran is leased again when the run is resumed."""
CLOSE_S = 20.0


class StopKind(StrEnum):
    """How `Engine.run` ended."""

    DONE = "done"
    "The run is over."
    INTERRUPTED = "interrupted"
    "It was asked to stop and can be resumed."


@dataclass(slots=True)
class _Flags:
    soft: str = ""
    hard: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    status: dict[str, Any] = field(default_factory=dict)


class Engine:
    """One run's driver; owns the journal while it runs."""

    def __init__(
        self,
        evolution: Evolution,
        fleet: Fleet,
        journal: JournalWriter,
        run_dir: RunDir,
        clock: Clock,
        epoch: int,
        first: ev.Started | ev.Resumed,
    ) -> None:
        self._core = evolution
        self._fleet = fleet
        self._journal = journal
        self._run_dir = run_dir
        self._clock = clock
        self._epoch = epoch
        self._first = first
        self._flags = _Flags()
        self._frame: list[ev.Event] = []
        self._commands: list[ev.Command] = []
        self._seq = 0
        self._next_batch = 0
        self._cpu = 0.0
        self._last_tick = -TICK_S
        self._last_status = -STATUS_S

    def run(self) -> StopKind:
        """Drive the run to its end or until it is asked to stop; closes the fleet and the journal."""
        started = self._clock.monotonic()
        base_elapsed, base_cpu = self._core.state.elapsed_s, self._core.state.core_cpu_s
        try:
            self._tell(self._first)
            if isinstance(self._first, ev.Resumed):
                self._reissue()
            self._step([], started, base_elapsed, base_cpu)
            drain_until: float | None = None
            while True:
                state = self._core.state
                if state.finished:
                    return self._end(StopKind.DONE)
                if self._flags.hard:
                    self._tell(ev.StopRequested(reason=self._flags.soft))
                    return self._end(StopKind.INTERRUPTED)
                if self._flags.soft and drain_until is None:
                    drain_until = self._clock.monotonic() + DRAIN_S
                    log.info(
                        "stopping: %s; waiting for %d items and %d jobs",
                        self._flags.soft,
                        len(state.running),
                        len(state.jobs),
                    )
                    self._tell(ev.StopRequested(reason=self._flags.soft))
                if drain_until is not None and (
                    (not state.running and not state.jobs) or self._clock.monotonic() > drain_until
                ):
                    return self._end(StopKind.INTERRUPTED)
                events = self._fleet.poll(POLL_S)
                self._step(events, started, base_elapsed, base_cpu)
        finally:
            self._fleet.close(CLOSE_S)
            self._journal.close()

    def request_stop(self, reason: str, hard: bool) -> None:
        """Ask the run to stop: drain first, or with `hard` at once. Thread-safe."""
        with self._flags.lock:
            self._flags.soft = self._flags.soft or reason
            self._flags.hard = self._flags.hard or hard

    def status(self) -> dict[str, Any]:
        """What the run is doing, as JSON values. Thread-safe."""
        with self._flags.lock:
            return dict(self._flags.status)

    def _step(self, events: Iterable[ev.Event], started: float, base_elapsed: float, base_cpu: float) -> None:
        cpu = self._clock.cpu()
        told = False
        for event in events:
            self._tell(event)
            told = True
        elapsed = base_elapsed + self._clock.monotonic() - started
        if told or elapsed - self._last_tick >= TICK_S:
            self._tell(ev.Tick(elapsed_s=round(elapsed, 3), cpu_s=round(base_cpu + self._cpu, 3)))
            self._last_tick = elapsed
        self._ask()
        self._cpu += self._clock.cpu() - cpu
        self._commit()
        if elapsed - self._last_status >= STATUS_S or self._core.state.finished:
            self._last_status = elapsed
            status = status_of(self._core.state, self._core.context)
            with self._flags.lock:
                self._flags.status = status

    def _tell(self, event: ev.Event) -> None:
        self._frame.append(event)
        self._core.tell(event)

    def _ask(self) -> None:
        capacity = self._fleet.capacity()
        items, jobs = capacity.num_items, capacity.num_jobs
        while len(self._frame) < MAX_FRAME_EVENTS:
            now = ev.Capacity(num_items=max(items, 0), num_jobs=max(jobs, 0))
            directives = self._core.ask(now)
            if not directives:
                return
            self._tell(ev.Asked(capacity=now))
            for directive in directives:
                self._tell(ev.Issued(directive=directive))
                items -= len(directive.items) if isinstance(directive, ev.Lease) else 0
                jobs -= isinstance(directive, ev.Train | ev.Merge | ev.Repair)
                self._commands += self._command(directive)

    def _command(self, directive: ev.Directive) -> list[ev.Command]:
        match directive:
            case ev.Lease():
                return list(self._batches(directive.items))
            case ev.Train() | ev.Merge() | ev.Repair():
                return [directive.job]
            case ev.Cancel() | ev.Retire():
                return [directive]
            case ev.Spawn() | ev.Open():
                self._write_harness(directive)
                return []
            case _:
                return []

    def _batches(self, items: Iterable[WorkItem]) -> Iterable[WorkBatch]:
        """Batches of one policy version each where possible: rows under the same weights are decoded together."""
        state, fleet = self._core.state, self._core.context.config.fleet
        by_version: dict[object, list[WorkItem]] = {}
        for item in items:
            by_version.setdefault((item.version, item.purpose), []).append(item)
        for group in by_version.values():
            for start in range(0, len(group), fleet.batch_items):
                part = tuple(group[start : start + fleet.batch_items])
                self._next_batch += 1
                yield WorkBatch(
                    id=self._epoch * 10**9 + self._next_batch,
                    items=part,
                    harnesses={i.harness: state.harnesses[i.harness] for i in part},
                    weights={i.version: state.versions[i.version].weights for i in part},
                    lease_s=fleet.lease_s,
                )

    def _write_harness(self, directive: ev.Spawn | ev.Open) -> None:
        harness = directive.harness
        if harness is None:
            return
        path = self._run_dir.harnesses_dir / f"{harness.id}.yaml"
        if not path.exists():
            from coharness.config.yaml_text import write_mapping

            path.write_text(write_mapping(harness.to_json()), encoding="utf-8")

    def _commit(self) -> None:
        if self._frame:
            self._run_dir.check_epoch(self._epoch)
            self._seq = self._journal.append(self._frame)
            self._frame = []
        if self._commands:
            commands, self._commands = self._commands, []
            self._fleet.submit(commands)

    def _reissue(self) -> None:
        """Submit again what was issued and has no outcome; the events are in the journal already."""
        state = self._core.state
        self._commands += list(self._batches(list(state.running.values())))
        self._commands += list(state.jobs.values())
        log.info("resumed: %d items and %d jobs are run again", len(state.running), len(state.jobs))

    def _end(self, kind: StopKind) -> StopKind:
        self._commit()
        self._core.state.check_identities()
        self._run_dir.write_snapshot(self._seq, state_digest(self._core.state))
        return kind
