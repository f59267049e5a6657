"""CPU time of this process and of all that it started, over time, by what they do.

Read from the kernel's counters once a second: often enough for windows of tens of seconds, seldom enough to cost nothing.
"""

import bisect
import threading
import time
from collections import defaultdict
from collections.abc import Mapping

import psutil

EVERY_S = 1.0
ROLES: Mapping[str, str] = {
    "RolloutActor": "rollout",
    "TrainerActor": "trainer",
    "Coordinator": "coordinator",
    "ReplayActor": "replay",
}
"""Part of a Ray worker's title -> what it does. This process is `driver`; what is left, Ray's daemons, is `ray`."""


class Meter:
    """Samples in a thread of its own from `start` to `stop`; `between` interpolates."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._spent: dict[tuple[int, float], tuple[str, float]] = {}
        "(pid, time of its start) -> role and CPU seconds when last seen; a process that ended keeps what it had."
        self._times: list[float] = []
        self._samples: list[dict[str, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._sample()
        self._thread.start()

    def stop(self) -> None:
        """End, with a last sample."""
        self._over.set()
        self._thread.join(10 * EVERY_S)
        self._sample()

    def between(self, begin: float, end: float) -> dict[str, float]:
        """Role -> CPU seconds from one moment to another, by the wall clock (seconds since 1970, as journals have it)."""
        before, after = self._at(begin), self._at(end)
        return {role: after[role] - before.get(role, 0.0) for role in sorted(after)}

    def _at(self, moment: float) -> dict[str, float]:
        place = min(max(bisect.bisect_left(self._times, moment), 1), len(self._times) - 1)
        left, right = self._times[place - 1], self._times[place]
        before, after = self._samples[place - 1], self._samples[place]
        share = (moment - left) / (right - left)
        return {role: before.get(role, 0.0) + (spent - before.get(role, 0.0)) * share for role, spent in after.items()}

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            self._sample()

    def _sample(self) -> None:
        now = time.time()
        for process in [self._own, *self._own.children(recursive=True)]:
            try:
                times, title = process.cpu_times(), " ".join(process.cmdline()[:1])
                key = (process.pid, process.create_time())
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            role = next((role for part, role in ROLES.items() if part in title), "ray")
            role = "driver" if process.pid == self._own.pid else role
            known = self._spent.get(key, (role, 0.0))[0]
            # Between two calls a worker has another title than in one.
            self._spent[key] = (role if known == "ray" else known, times.user + times.system)
        total: dict[str, float] = defaultdict(float)
        for role, spent in self._spent.values():
            total[role] += spent
        self._times.append(now)
        self._samples.append(total)
