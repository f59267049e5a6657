"""The coordinator: the detached actor that owns a run while it goes; control plane only, no decisions of its own.

    driver (api) ── status, stop ──► Coordinator ── Engine.run in a thread ──► RayFleet ──► workers
                                         ▲────────────── ping by name ◄──────────┘ (watchdogs)

Invariants: one per run, by its name; it takes the run's lease before it starts anything, so the epoch that its workers carry is
the run's newest; it is never restarted by Ray (`max_restarts=0`), since only `resume` may open a new epoch. Everything it
knows is in the journal: killing it loses nothing.
"""

import asyncio
from typing import Any

from actors.fleet import RayFleet
from actors.options import Deadlines, Factories, coordinator_name, log_to, resolve
from coharness.loop.engine import CLOSE_S, Engine
from coharness.loop.run_dir import RunDir


class Coordinator:
    """One run. Calls are served on an event loop; the engine blocks in a thread of its own."""

    def __init__(self, run_dir: str, resume: bool, factories: Factories, deadlines: Deadlines) -> None:
        self._run = RunDir.open(run_dir)
        self._resume = resume
        self._factories = factories
        self._deadlines = deadlines
        self._engine: Engine | None = None
        self._stop: tuple[str, bool] | None = None
        log_to(self._run.path, "coordinator")
        self._epoch = self._run.acquire_lease()

    async def ping(self) -> int:
        """The epoch that it serves."""
        return self._epoch

    async def ready(self) -> None:
        """Answered once it is there."""

    async def status(self) -> dict[str, Any]:
        """What the run is doing, as JSON values; `{"phase": "starting"}` until the engine is built."""
        if self._engine is None:
            return {"phase": "starting"}
        return self._engine.status() or {"phase": "starting"}

    async def stop(self, reason: str, hard: bool) -> None:
        """Ask the run to stop: drain first, or with `hard` at once."""
        self._stop = (reason, hard)
        if self._engine is not None:
            self._engine.request_stop(reason, hard)

    async def run(self) -> str:
        """Drive the run to its end; the value of a `StopKind`."""
        return await asyncio.to_thread(self._drive)

    def _drive(self) -> str:
        config = self._run.load_config()
        fleet = RayFleet(
            self._run.path,
            config,
            self._epoch,
            coordinator=coordinator_name(self._run.path),
            factories=self._factories,
            deadlines=self._deadlines,
        )
        engine: Engine | None = None
        try:
            engine = resolve(self._factories.engine)(self._run.path, fleet, self._epoch, self._resume)
        finally:
            # Once there is an engine, it closes the fleet.
            if engine is None:
                fleet.close(CLOSE_S)
        self._engine = engine
        if self._stop is not None:
            engine.request_stop(*self._stop)
        return engine.run().value
