"""One-sided cumulative sums of standardised observations, with a threshold found by simulation of what is healthy.

S <- max(0, S + z - k). The textbook threshold holds for independent values with known mean and spread. Here both come from a
warm-up of a few points and values are smoothed, so that h = 5 raises 14 false alarms in 100 healthy runs; see `calibrate`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Cusum:
    """The statistic after some observations; during its warm-up it only gathers."""

    threshold: float
    slack: float = 0.5
    "k, half of the shift in standard deviations that is to be seen soonest."
    warmup: int = 20
    "Observations from which mean and spread are taken."
    gathered: tuple[float, ...] = ()
    statistic: float = 0.0
    start: int = 0
    "Observation after which the statistic last left zero."
    count: int = 0

    def observed(self, value: float) -> "Cusum":
        """The statistic after one more finite value.

        Raises:
            ValueError: the value is not finite; leave out what was not measured.
        """
        if not math.isfinite(value):
            raise ValueError(f"got {value!r}, expected a finite number; leave out what was not measured")
        count = self.count + 1
        if len(self.gathered) < self.warmup:
            return replace(self, gathered=(*self.gathered, value), count=count, start=count)
        mean = sum(self.gathered) / self.warmup
        spread = math.sqrt(sum((x - mean) ** 2 for x in self.gathered) / max(self.warmup - 1, 1))
        total = self.statistic + (value - mean) / max(spread, 1e-9) - self.slack
        return replace(self, statistic=max(total, 0.0), start=self.start if total > 0 else count, count=count)

    @property
    def alarms(self) -> bool:
        """Whether the statistic has reached its threshold."""
        return self.statistic >= self.threshold


Healthy = Callable[[np.random.Generator], npt.NDArray[np.float64]]
"""Draws the values that one healthy run would give the statistic."""


def calibrate(
    healthy: Healthy,
    rng: np.random.Generator,
    *,
    alpha: float,
    slack: float = 0.5,
    warmup: int = 20,
    num_runs: int = 400,
) -> float:
    """The threshold that a healthy run reaches with chance `alpha`, by simulation.

    Raises:
        ValueError: alpha outside (0, 1), or too few runs to see it.
    """
    if not 0 < alpha < 1 or num_runs * alpha < 5:
        raise ValueError(
            f"alpha is {alpha!r} with {num_runs} runs; expected a chance that at least 5 of the runs would show"
        )
    peaks = []
    for _ in range(num_runs):
        peaks.append(_peak(healthy(rng), slack, warmup))
    # The next larger order statistic: the promise is to stay at or below alpha.
    index = min(math.ceil((1 - alpha) * (num_runs + 1)) - 1, num_runs - 1)
    return float(np.sort(peaks)[index]) + 1e-9


def _peak(values: npt.NDArray[np.float64], slack: float, warmup: int) -> float:
    """The statistic's largest value over a run; the same recursion as `Cusum`, on an array."""
    first = values[:warmup]
    spread = max(float(first.std(ddof=1)) if len(first) > 1 else 0.0, 1e-9)
    steps = (values[warmup:] - first.mean()) / spread - slack
    peak = total = 0.0
    for step in steps.tolist():
        total = max(total + step, 0.0)
        peak = max(peak, total)
    return peak
