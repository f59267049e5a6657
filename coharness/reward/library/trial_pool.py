"""Where trials of libraries are judged: the port that a society drives, and its pool of threads.

A pool takes trials while it has room, and gives back each one exactly once, in whatever order they end. `actors.library` has
the pool of Ray actors. Invariant: what is judged depends on the trial alone, never on who judges it, so a fixed order of
telling gives the same population on any pool.
"""

import importlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from coharness.records.errors import ConfigError
from coharness.records.ids import JSON
from coharness.reward.library.gate import Comparison
from coharness.reward.library.population import LibraryTrial

logger = logging.getLogger(__name__)
Judge = Callable[[LibraryTrial], Comparison | None]
"""Judges one trial; None is a failed judgment, which says nothing about the proposal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """How a judge is built in another process."""

    factory: str
    "`package.module:function`; takes the settings, gives a `Judge`."
    settings: Mapping[str, JSON]

    def build(self) -> Judge:
        """The judge, here.

        Raises:
            ConfigError: no such function.
        """
        module, _, name = self.factory.partition(":")
        found = vars(importlib.import_module(module)).get(name)
        if not callable(found):
            raise ConfigError(f"a judge's factory is written package.module:function, got {self.factory!r}")
        judge: Judge = found(self.settings)
        return judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of a trial."""

    number: int
    found: Comparison | None
    failure: str = ""
    "Why nobody could judge it, where its worker died or was ended; such a trial has no comparison."


class TrialPool(Protocol):
    """Judges trials side by side."""

    @property
    def size(self) -> int:
        """Trials that may be out at once."""
        ...

    def submit(self, trial: LibraryTrial) -> None:
        """Begin a trial; the caller keeps no more out than `size`."""
        ...

    def poll(self, timeout_s: float) -> list[Judged]:
        """Those that have ended, after `timeout_s` at the latest; none where nothing has."""
        ...

    def close(self) -> None:
        """End the workers; what is out is lost."""
        ...


class ThreadPool:
    """Threads of this process, for judges that wait for endpoints.

    A thread cannot be ended: a judgment's own deadlines (`ChatClient.timeout_s`, its attempts) bound a trial.
    """

    def __init__(self, judge: Judge, size: int) -> None:
        self._judge = judge
        self._size = size
        self._threads = ThreadPoolExecutor(max_workers=size, thread_name_prefix="library-trial")
        self._out: dict[Future[Comparison | None], int] = {}

    @property
    def size(self) -> int:
        """See `TrialPool.size`."""
        return self._size

    def submit(self, trial: LibraryTrial) -> None:
        """See `TrialPool.submit`."""
        self._out[self._threads.submit(self._judge, trial)] = trial.number

    def poll(self, timeout_s: float) -> list[Judged]:
        """See `TrialPool.poll`; what a judge raises is raised here."""
        done, _ = wait(self._out, timeout=timeout_s, return_when=FIRST_COMPLETED)
        return [Judged(number=self._out.pop(future), found=future.result()) for future in done]

    def close(self) -> None:
        """See `TrialPool.close`; what has not begun is not begun, what has is waited for."""
        self._threads.shutdown(cancel_futures=True)


def wait_for(pool: TrialPool, num_out: int, patience_s: float) -> list[Judged]:
    """Poll until something ends; a pool that is silent for long is told of, every `patience_s`."""
    since = time.monotonic()
    while True:
        found = pool.poll(patience_s)
        if found:
            return found
        logger.warning("none of %d trials has come back for %.0f s; still waiting", num_out, time.monotonic() - since)
