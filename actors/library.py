"""Trials of libraries on Ray: one actor a worker, and no decisions.

An actor builds its judge once, from plain values, and judges trial after trial; `actors.pool` waits for them and replaces those
that died or exceeded their deadline. Files that a judge reads and the cache of judgments must be seen by all nodes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from actors.options import START_S, thread_env
from actors.pool import ActorPool, Place
from actors.session import session
from coharness.records.errors import PreflightError
from coharness.reward.library.gate import Comparison
from coharness.reward.library.population import LibraryTrial
from coharness.reward.library.trial_pool import Judged, JudgeSpec

MAX_ATTEMPTS = 2
UNBUILT = "its judge is not known to be built"


class TrialHost:
    """The actor: builds its judge where it runs."""

    def __init__(self, spec: JudgeSpec) -> None:
        self._judge = spec.build()

    def judge(self, trial: LibraryTrial) -> Comparison | None:
        """Judge one trial."""
        return self._judge(trial)

    def ping(self) -> None:
        """Answer once the judge is built."""


class RayTrialPool(ActorPool[LibraryTrial, Judged]):
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
        self._start_s = start_s
        super().__init__(size, deadline_s, max_attempts)
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
        self._send(self._free()[0], trial, 1)

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

    def _start(self) -> Any:
        import ray

        options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": {"env_vars": thread_env(1)}}
        return ray.remote(TrialHost).options(**options).remote(self._spec)

    def _ask(self, actor: Any, work: LibraryTrial, attempt: int) -> Any:
        return actor.judge.remote(work)

    def _answered(self, place: Place[LibraryTrial], work: LibraryTrial, value: Comparison | None) -> Judged:
        place.memory = ""
        return Judged(number=work.number, found=value)

    def _failed(self, work: LibraryTrial, error: str) -> Judged:
        return Judged(number=work.number, found=None, failure=error)

    def _broken(self, error: Exception) -> None:
        import ray

        if isinstance(error, ray.exceptions.RayTaskError):
            # The judge itself raised: the same trial would raise again.
            raise error.cause from error

    def _replaced(self, place: Place[LibraryTrial]) -> None:
        place.memory = UNBUILT

    def _grace_s(self, place: Place[LibraryTrial]) -> float:
        # An actor that took another's place has its judge to build first.
        return self._start_s if place.memory == UNBUILT else 0.0


@contextmanager
def trials_on_ray(workers: int, deadline_s: float) -> Iterator[Callable[[JudgeSpec], RayTrialPool]]:
    """A Ray session for a society of libraries, and what opens its pool there.

    Raises:
        PreflightError: the cluster is too small, or its workers would run other code than this process.
    """
    with session(num_cpus=workers, threads_per_worker=1):
        yield lambda spec: RayTrialPool(spec, workers, deadline_s=deadline_s)
