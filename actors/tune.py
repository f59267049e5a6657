"""Population-based search on Ray: one actor a worker, and no decisions.

An actor holds the same `coharness.tune.worker.Worker` as a worker process does; `actors.pool` waits for them and replaces those
that died or exceeded their deadline. Checkpoints lie in the search's folder, which all nodes must see.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from actors.options import thread_env
from actors.pool import ActorPool, Place
from actors.session import session
from coharness.tune.config import TuneConfig
from coharness.tune.events import Order, Report
from coharness.tune.files import SearchDir
from coharness.tune.pool import worker_settings


class TuneWorker:
    """The actor: builds its worker where it runs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from coharness.tune.worker import Worker

        target = settings.pop("target")
        self._worker = Worker(**settings, target=None if target is None else (target[0], target[1], target[2]))

    def run(self, order: Order) -> Report:
        """Do one interval."""
        return self._worker.run(order)


class RayPool(ActorPool[Order, Report]):
    """A `coharness.tune.pool.Pool` of actors in the Ray session that is open."""

    def __init__(self, search: SearchDir, config: TuneConfig) -> None:
        """Start the actors."""
        self._threads = config.pool.threads_per_worker
        self._settings = worker_settings(search, config)
        super().__init__(config.pool.workers, config.pool.deadline_s, config.pool.max_attempts)

    @property
    def num_free(self) -> int:
        """Actors without an order."""
        return len(self._free())

    def submit(self, order: Order) -> None:
        """Give an order to a free actor, to one that has the parent in memory where there is one."""
        wanted = {segment for segment, _ in order.parents}
        free = self._free()
        place = next((place for place in free if place.memory in wanted), free[0])
        self._send(place, order, order.attempt)

    def _start(self) -> Any:
        import ray

        options = {
            "num_cpus": self._threads,
            "max_restarts": 0,
            "runtime_env": {"env_vars": thread_env(self._threads)},
        }
        return ray.remote(TuneWorker).options(**options).remote(dict(self._settings))

    def _ask(self, actor: Any, work: Order, attempt: int) -> Any:
        return actor.run.remote(replace(work, attempt=attempt))

    def _answered(self, place: Place[Order], work: Order, value: Report) -> Report:
        place.memory = value.segment
        return value

    def _failed(self, work: Order, error: str) -> Report:
        return Report(slot=work.slot, segment=work.segment, steps=0, metrics={}, seconds=0.0, error=error)


@contextmanager
def ray_search(config: TuneConfig) -> Iterator[type[RayPool]]:
    """A Ray session for a search, and the pool that runs in it.

    Raises:
        PreflightError: the cluster is too small, or its workers would run other code than this process.
    """
    pool = config.pool
    with session(num_cpus=pool.workers * pool.threads_per_worker, threads_per_worker=pool.threads_per_worker):
        yield RayPool
