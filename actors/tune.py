"""Population-based search on Ray: one actor a worker, and no decisions.

An actor holds the same `coharness.tune.worker.Worker` as a worker process does; the pool gives orders, waits, and replaces
actors that died or exceeded their deadline. Checkpoints lie in the search's folder, which all nodes must see.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from actors.options import thread_env
from actors.session import session
from coharness.tune.config import TuneConfig
from coharness.tune.events import Order, Report
from coharness.tune.files import SearchDir
from coharness.tune.pool import worker_settings

_log = logging.getLogger(__name__)


class TuneWorker:
    """The actor: builds its worker where it runs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from coharness.tune.worker import Worker

        target = settings.pop("target")
        self._worker = Worker(**settings, target=None if target is None else (target[0], target[1], target[2]))

    def run(self, order: Order) -> Report:
        """Do one interval."""
        return self._worker.run(order)


@dataclass(slots=True)
class _Place:
    actor: Any
    order: Order | None = None
    ref: Any = None
    deadline: float = 0.0
    holds: str = ""


class RayPool:
    """A `coharness.tune.pool.Pool` of actors in the Ray session that is open."""

    def __init__(self, search: SearchDir, config: TuneConfig) -> None:
        """Start the actors."""
        self._config = config.pool
        self._settings = worker_settings(search, config)
        self._places = [_Place(actor=self._start()) for _ in range(config.pool.workers)]
        self._ready: list[Report] = []

    @property
    def num_free(self) -> int:
        """Actors without an order."""
        return sum(place.order is None for place in self._places)

    def submit(self, order: Order) -> None:
        """Give an order to a free actor, to one that has the parent in memory where there is one."""
        wanted = {segment for segment, _ in order.parents}
        free = [place for place in self._places if place.order is None]
        self._send(next((place for place in free if place.holds in wanted), free[0]), order)

    def poll(self, timeout_s: float) -> list[Report]:
        """See `coharness.tune.pool.Pool.poll`."""
        import ray

        until = time.monotonic() + timeout_s
        while not self._ready:
            busy = {place.ref: place for place in self._places if place.order is not None}
            now = time.monotonic()
            if not busy or now >= until:
                break
            due = min([until, *(place.deadline for place in busy.values())])
            done, _ = ray.wait(list(busy), num_returns=1, timeout=max(0.0, due - now))
            for ref in done:
                self._receive(busy[ref])
            for place in self._places:
                if place.order is not None and time.monotonic() >= place.deadline:
                    self._replace(place, f"did not end within {self._config.deadline_s:g} s")
        found, self._ready = self._ready, []
        return found

    def close(self) -> None:
        """End every actor by its handle."""
        import ray

        for place in self._places:
            ray.kill(place.actor, no_restart=True)

    def _start(self) -> Any:
        import ray

        options = {
            "num_cpus": self._config.threads_per_worker,
            "max_restarts": 0,
            "runtime_env": {"env_vars": thread_env(self._config.threads_per_worker)},
        }
        return ray.remote(TuneWorker).options(**options).remote(dict(self._settings))

    def _send(self, place: _Place, order: Order) -> None:
        place.order = order
        place.deadline = time.monotonic() + self._config.deadline_s
        place.ref = place.actor.run.remote(order)

    def _receive(self, place: _Place) -> None:
        import ray

        try:
            report: Report = ray.get(place.ref)
        except ray.exceptions.RayError as error:
            self._replace(place, f"died: {type(error).__name__}")
            return
        place.order, place.ref, place.holds = None, None, report.segment
        self._ready.append(report)

    def _replace(self, place: _Place, why: str) -> None:
        import ray

        order = place.order
        _log.warning("an actor %s; another one takes its place", why)
        ray.kill(place.actor, no_restart=True)
        place.actor, place.order, place.holds = self._start(), None, ""
        if order is None:
            return
        if order.attempt < self._config.max_attempts:
            self._send(place, replace(order, attempt=order.attempt + 1))
            return
        error = f"the actor {why}, {order.attempt} times"
        self._ready.append(
            Report(slot=order.slot, segment=order.segment, steps=0, metrics={}, seconds=0.0, error=error)
        )


@contextmanager
def ray_search(config: TuneConfig) -> Iterator[type[RayPool]]:
    """A Ray session for a search, and the pool that runs in it.

    Raises:
        PreflightError: the cluster is too small, or its workers would run other code than this process.
    """
    pool = config.pool
    with session(num_cpus=pool.workers * pool.threads_per_worker, threads_per_worker=pool.threads_per_worker):
        yield RayPool
