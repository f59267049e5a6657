"""Does the judge's opinion of the policy rise away from a benchmark that no judge touches?

D = EWMA of the judge's batch means, minus the benchmark, at each reading of the benchmark. A judge that follows the truth keeps D
level while both rise. D alone fires on every miscalibrated judge, so it counts together with a shortcut (`alarm`).
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coharness.reward.monitors.cusum import Cusum, calibrate


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """How a run is measured; what a threshold is calibrated for."""

    steps: int = 200
    rollouts: int = 64
    "Judged rollouts a step."
    judge_spread: float = 0.3
    "Standard deviation of one judged score."
    benchmark_items: int = 64
    benchmark_every: int = 5
    warmup: int = 8
    "Readings of the benchmark that the statistic is standardised on."


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceDetector:
    """The detector after some steps."""

    cusum: Cusum
    smoothing: float = 0.1
    "Weight of a new batch in the moving average."
    average: float | None = None

    def judged(self, mean: float) -> "DivergenceDetector":
        """After one batch of judged rollouts."""
        average = mean if self.average is None else self.average + self.smoothing * (mean - self.average)
        return replace(self, average=average)

    def benchmarked(self, value: float) -> "DivergenceDetector":
        """After one reading of the benchmark; before any judged batch it is ignored."""
        if self.average is None:
            return self
        return replace(self, cusum=self.cusum.observed(self.average - value))

    @property
    def alarms(self) -> bool:
        """Whether D has risen."""
        return self.cusum.alarms


def calibrated_divergence(
    shape: RunShape, rng: np.random.Generator, *, alpha: float = 0.05, smoothing: float = 0.1, num_runs: int = 400
) -> DivergenceDetector:
    """A detector whose healthy runs of this shape alarm with chance `alpha`.

    Healthy runs are drawn with a quality that climbs from .2-.5 to .4-.9 along a saturating curve, since a threshold found on a
    flat run alarms on every policy that learns: the average lags behind a rising benchmark and falls back to it.
    """

    def healthy(rng: np.random.Generator) -> npt.NDArray[np.float64]:
        return healthy_differences(shape, rng, smoothing)

    threshold = calibrate(healthy, rng, alpha=alpha, warmup=shape.warmup, num_runs=num_runs)
    return DivergenceDetector(cusum=Cusum(threshold=threshold, warmup=shape.warmup), smoothing=smoothing)


def healthy_differences(shape: RunShape, rng: np.random.Generator, smoothing: float) -> npt.NDArray[np.float64]:
    """D at each benchmark reading of one healthy run."""
    quality = rising_quality(shape.steps, rng)
    offset = rng.uniform(-0.1, 0.1)
    batches = quality + offset + rng.normal(scale=shape.judge_spread / np.sqrt(shape.rollouts), size=shape.steps)
    average, differences = batches[0], []
    for step in range(shape.steps):
        average = batches[step] if step == 0 else average + smoothing * (batches[step] - average)
        if (step + 1) % shape.benchmark_every == 0:
            differences.append(average - rng.binomial(shape.benchmark_items, quality[step]) / shape.benchmark_items)
    return np.asarray(differences)


def rising_quality(steps: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """A learning curve: quality in (0, 1) of each step [steps], sometimes with a plateau from the start."""
    low = rng.uniform(0.2, 0.5)
    gain = rng.uniform(0.0, 0.4)
    pace = rng.uniform(0.2, 1.5) * steps / 2
    return np.asarray(low + gain * (1 - np.exp(-np.arange(steps) / pace)))
