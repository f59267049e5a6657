"""Trials of libraries on Ray: one actor a worker, and no decisions.

An actor builds its judge once, from plain values, and judges trial after trial; the pool gives trials, waits, and replaces actors
that died or exceeded their deadline. Files that a judge reads and the cache of judgments must be seen by all nodes.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from actors.options import START_S, thread_env
from actors.session import session
from coharness.records.errors import PreflightError
from coharness.reward.library.gate import Comparison
from coharness.reward.library.population import LibraryTrial
from coharness.reward.library.trial_pool import Judged, JudgeSpec

_log = logging.getLogger(__name__)
MAX_ATTEMPTS = 2


class TrialHost:
    """The actor: builds its judge where it runs."""

    def __init__(self, spec: JudgeSpec) -> None:
        self._judge = spec.build()

    def judge(self, trial: LibraryTrial) -> Comparison | None:
        """Judge one trial."""
        return self._judge(trial)

    def ping(self) -> None:
        """Answer once the judge is built."""


@dataclass(slots=True)
class _Place:
    actor: Any
    trial: LibraryTrial | None = None
    ref: Any = None
    attempt: int = 0
    deadline: float = 0.0
    is_built: bool = True
    "Whether its judge is known to be built; one that took another's place has that to do first."


class RayTrialPool:
    """A `coharness.reward.library.trial_pool.TrialPool` of actors in the Ray session that is open."""

    def __init__(
        self,
        spec: JudgeSpec,
        size: int,
        *,
        deadline_s: float,
        max_attempts: int = MAX_ATTEMPTS,
        start_s: float = START_S,
    ) -> None:
        """Start the actors, and wait until each has built its judge.

        Args:
            spec: how they build it.
            size: how many.
            deadline_s: for one trial; its actor is ended then.
            max_attempts: how often a trial is given to an actor before it counts as a failed judgment.
            start_s: for an actor to be ready.

        Raises:
            PreflightError: a judge cannot be built, or not in time.
        """
        self._spec = spec
        self._deadline_s = deadline_s
        self._max_attempts = max_attempts
        self._start_s = start_s
        self._places = [_Place(actor=self._start()) for _ in range(size)]
        self._ready: list[Judged] = []
        try:
            self._wait_until_built()
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Number of actors."""
        return len(self._places)

    def submit(self, trial: LibraryTrial) -> None:
        """Give a trial to a free actor."""
        place = next(place for place in self._places if place.trial is None)
        self._send(place, trial, 1)

    def poll(self, timeout_s: float) -> list[Judged]:
        """See `TrialPool.poll`; what a judge raises is raised here."""
        import ray

        until = time.monotonic() + timeout_s
        while not self._ready:
            busy = {place.ref: place for place in self._places if place.trial is not None}
            now = time.monotonic()
            if not busy or now >= until:
                break
            due = min([until, *(place.deadline for place in busy.values())])
            done, _ = ray.wait(list(busy), num_returns=1, timeout=max(0.0, due - now))
            for ref in done:
                self._receive(busy[ref])
            for place in self._places:
                if place.trial is not None and time.monotonic() >= place.deadline:
                    self._replace(place, f"did not end within {self._deadline_s:g} s")
        found, self._ready = self._ready, []
        return found

    def close(self) -> None:
        """End every actor by its handle."""
        import ray

        for place in self._places:
            ray.kill(place.actor, no_restart=True)

    def _start(self) -> Any:
        import ray

        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": {"env_vars": thread_env(1)}}
        return ray.remote(TrialHost).options(**options).remote(self._spec)

    def _wait_until_built(self) -> None:
        import ray

        try:
            ray.get([place.actor.ping.remote() for place in self._places], timeout=self._start_s)
        except ray.exceptions.GetTimeoutError:
            raise PreflightError(
                f"the {self.size} workers that judge trials were not ready within {self._start_s:g} s; give the cluster "
                "more cores, or ask for fewer workers"
            ) from None
        except ray.exceptions.RayError as error:
            why = str(error).strip().rpartition("\n")[2]
            raise PreflightError(f"a worker that judges trials cannot build its judge: {why}") from error

    def _send(self, place: _Place, trial: LibraryTrial, attempt: int) -> None:
        place.trial, place.attempt = trial, attempt
        place.deadline = time.monotonic() + self._deadline_s + (0.0 if place.is_built else self._start_s)
        place.ref = place.actor.judge.remote(trial)

    def _receive(self, place: _Place) -> None:
        import ray

        trial = place.trial
        try:
            found: Comparison | None = ray.get(place.ref)
        except ray.exceptions.RayTaskError as error:
            # The judge itself raised: the same trial would raise again.
            raise error.cause from error
        except ray.exceptions.RayError as error:
            self._replace(place, f"died ({type(error).__name__})")
            return
        place.trial, place.ref, place.is_built = None, None, True
        if trial is not None:
            self._ready.append(Judged(number=trial.number, found=found))

    def _replace(self, place: _Place, why: str) -> None:
        import ray

        trial, attempt = place.trial, place.attempt
        _log.warning("a worker that judges trials %s; another one takes its place", why)
        ray.kill(place.actor, no_restart=True)
        place.actor, place.trial, place.ref, place.is_built = self._start(), None, None, False
        if trial is None:
            return
        if attempt < self._max_attempts:
            self._send(place, trial, attempt + 1)
            return
        self._ready.append(Judged(number=trial.number, found=None, failure=f"its worker {why}, {attempt} times"))


@contextmanager
def trials_on_ray(workers: int, deadline_s: float) -> Iterator[Callable[[JudgeSpec], RayTrialPool]]:
    """A Ray session for a society of libraries, and what opens its pool there.

    Raises:
        PreflightError: the cluster is too small, or its workers would run other code than this process.
    """
    with session(num_cpus=workers, threads_per_worker=1):
        yield lambda spec: RayTrialPool(spec, workers, deadline_s=deadline_s)
