"""A pool in this process and in virtual time: as many workers as asked, and results in the order in which those would have ended.

An interval lasts as long as the sum of its last step's metric `cost` times its steps, 1 a step where there is none. For
tests and toy problems: thousands of intervals a second, and the same order of events every time.
"""

import heapq
from dataclasses import dataclass, field

from coharness.tune.config import TuneConfig
from coharness.tune.events import Order, Report
from coharness.tune.files import SearchDir
from coharness.tune.pool import worker_settings
from coharness.tune.worker import Worker

COST = "cost"
"""Metric that says how long a step of this member lasts, in virtual seconds."""


@dataclass(order=True, slots=True)
class _Running:
    until: float
    place: int
    report: Report = field(compare=False)


class InlinePool:
    """A `Pool` without processes."""

    def __init__(self, search: SearchDir, config: TuneConfig) -> None:
        settings = worker_settings(search, config)
        target = settings.pop("target")
        self._worker = Worker(**settings, target=None if target is None else tuple(target))
        self._num_workers = config.pool.workers
        self._running: list[_Running] = []
        self._num_submitted = 0
        self.now = 0.0
        "Virtual seconds since the search began."
        self.busy = 0.0
        "Virtual seconds of work, over all workers."

    @property
    def num_free(self) -> int:
        """Virtual workers without an order."""
        return self._num_workers - len(self._running)

    def submit(self, order: Order) -> None:
        """Do the order now, and hold its report back until its time has come."""
        report = self._worker.run(order)
        lasts = report.metrics.get(COST, 1.0) * max(report.steps, 1)
        self.busy += lasts
        self._num_submitted += 1
        virtual = Report(
            slot=report.slot,
            segment=report.segment,
            steps=report.steps,
            metrics=report.metrics,
            seconds=lasts,
            error=report.error,
        )
        heapq.heappush(self._running, _Running(until=self.now + lasts, place=self._num_submitted, report=virtual))

    def poll(self, timeout_s: float) -> list[Report]:
        """The report that comes next, one at a time; the clock goes there."""
        if not self._running:
            return []
        first = heapq.heappop(self._running)
        self.now = first.until
        return [first.report]

    def close(self) -> None:
        """Nothing was started."""
