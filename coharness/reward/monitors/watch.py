"""The monitors of a run, all together: a value that grows by audits, in steps of a fixed number of them.

    audits ─► steps ─► conflict, divergence, window ─► alarm at a step ─► restarted for the next one

Driven by the fold of a run's events, so it reads no clock and draws nothing: the bootstrap of a shortcut takes its generator from
the caller. What is healthy comes from a warm-up, or from a person. Audits of another version of the judge than the present one
are no observation; after a change of the judge the window is empty, and what is healthy stays what it was.
"""

from dataclasses import dataclass, replace

import numpy as np

from coharness.records.judging import Alarm
from coharness.records.work import Audit
from coharness.reward.monitors.alarm import raise_alarm
from coharness.reward.monitors.conflict import ConflictDetector, healthy_rate_of
from coharness.reward.monitors.divergence import DivergenceDetector
from coharness.reward.monitors.shortcut import FEATURES, Shortcut, shortcuts
from coharness.stats.proportions import wilson

SATURATED_ABOVE = 0.95
MET_ABOVE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """What stays the same during a run."""

    step_audits: int
    warmup_steps: int
    healthy_conflict_rate: float | None
    "None: from the warm-up."
    horizon: int
    "Steps that the run can have at most."
    alpha: float
    high: float
    shortcut_bound: float
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The monitors after some audits."""

    settings: WatchSettings
    step: int = 0
    pending: tuple[Audit, ...] = ()
    "Audits of the step that is not full yet."
    window: tuple[Audit, ...] = ()
    "The latest ones."
    warmup: tuple[int, int] = (0, 0)
    "(conflicts, audited) of the warm-up so far."
    conflict: ConflictDetector | None = None
    "None during the warm-up."
    divergence: DivergenceDetector | None = None
    "None where the run is too short to have a benchmark to hold against."

    def observed(self, audits: tuple[Audit, ...]) -> "Watch":
        """After some more audits."""
        size, watch = self.settings.step_audits, replace(self, pending=self.pending + audits)
        while len(watch.pending) >= size:
            watch = replace(watch, pending=watch.pending[size:])._stepped(watch.pending[:size])
        return watch

    def benchmarked(self, value: float) -> "Watch":
        """After a reading of a benchmark that no judge touches."""
        if self.divergence is None:
            return self
        return replace(self, divergence=self.divergence.benchmarked(value))

    def restarted(self, *, forget: bool = False) -> "Watch":
        """After a response: evidence gathers anew; with `forget` the judge is another, and what is said of the old one goes."""
        rate = None if self.conflict is None else self.conflict.healthy_rate
        divergence = self.divergence
        if divergence is not None:
            cusum = replace(divergence.cusum, statistic=0.0, start=divergence.cusum.count)
            if forget:
                # Another judge has another scale, so where it stands beside the benchmark is learnt anew.
                cusum = replace(cusum, gathered=(), start=0, count=0)
            divergence = replace(divergence, cusum=cusum, average=None if forget else divergence.average)
        return replace(
            self,
            conflict=None if rate is None else self._detector(rate),
            divergence=divergence,
            pending=() if forget else self.pending,
            window=() if forget else self.window,
        )

    @property
    def observations(self) -> tuple[int, int]:
        """Steps, and readings of the benchmark: between two of either, an alarm stays what it was."""
        return self.step, 0 if self.divergence is None else self.divergence.cusum.count

    def alarm(self, rng: np.random.Generator) -> Alarm | None:
        """The alarm of this step, if any."""
        if self.conflict is None:
            return None
        conflict = self.conflict.alarms
        divergence = self.divergence is not None and self.divergence.alarms
        if not conflict and not divergence:
            return None
        used = self.shortcut(rng)
        onset = self.step - self.conflict.steps + self.conflict.onset if conflict else None
        return raise_alarm(
            self.step,
            conflict=conflict,
            divergence=divergence,
            shortcut=None if used is None else used.feature,
            onset=onset,
        )

    def shortcut(self, rng: np.random.Generator) -> Shortcut | None:
        """The surface feature that the judge follows most, given the verdict; None where it follows none."""
        window = self.window
        if len(window) < 20:
            return None
        columns = {name: [audit.features[i] for audit in window] for i, name in enumerate(FEATURES)}
        found = shortcuts([a.judged for a in window], [a.verified for a in window], columns, rng)
        return found[0] if found and found[0].is_used(self.settings.shortcut_bound) else None

    def findings(self) -> tuple[str, ...]:
        """What raises no alarm alone."""
        found = []
        if self.divergence is not None and self.divergence.alarms:
            found.append("the judge's mean has risen away from the benchmark")
        met = sum(audit.judged >= MET_ABOVE for audit in self.window)
        if self.window and wilson(met, len(self.window)).low > SATURATED_ABOVE:
            found.append(f"the judge is content with {met} of the last {len(self.window)} attempts")
        return tuple(found)

    @property
    def conflict_rate(self) -> tuple[int, int]:
        """(conflicts, audited) over the window."""
        return self._conflicts(self.window), len(self.window)

    def _stepped(self, audits: tuple[Audit, ...]) -> "Watch":
        settings, step = self.settings, self.step + 1
        conflicts, divergence = self._conflicts(audits), self.divergence
        if divergence is not None:
            divergence = divergence.judged(sum(a.judged for a in audits) / len(audits))
        warmup, conflict = self.warmup, self.conflict
        if conflict is not None:
            conflict = conflict.observed(conflicts, len(audits))
        else:
            warmup = (warmup[0] + conflicts, warmup[1] + len(audits))
            if step >= settings.warmup_steps:
                given = settings.healthy_conflict_rate
                conflict = self._detector(healthy_rate_of(*warmup) if given is None else given)
        return replace(
            self,
            step=step,
            window=(self.window + audits)[-settings.window :],
            warmup=warmup,
            conflict=conflict,
            divergence=divergence,
        )

    def _detector(self, rate: float) -> ConflictDetector:
        return ConflictDetector.start(rate, horizon=self.settings.horizon, alpha=self.settings.alpha)

    def _conflicts(self, audits: tuple[Audit, ...]) -> int:
        return sum(audit.judged >= self.settings.high and not audit.verified for audit in audits)
