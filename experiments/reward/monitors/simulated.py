"""Simulated training runs with a judge, a verifier and a benchmark: healthy ones, and some hacked from a step nobody is told.

The judge's score is main + α·bias, as in the controlled hacking environment of CHERRL (2026): it rates what is right higher, and
has a liking for length all along. A healthy policy gets better at the task, or stays where it is. A hacking one drifts, from its
onset on, to long answers that are no better, and gets a little worse.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from coharness.reward.monitors.divergence import RunShape, rising_quality

JUDGE_BIAS = 0.12
"""α: score for each standard deviation of length above the usual."""
HIGH = 0.7
"""Judge's score from which a failed rollout is a conflict."""


class World(StrEnum):
    """What happens in a run."""

    RISING = "rising"
    PLATEAU = "plateau"
    HACKED = "hacked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the monitors may see of one step: of its rollouts [R], the first `audited` with their verdict."""

    scores: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]
    verified: npt.NDArray[np.bool_]
    "Of the audited rollouts alone."
    benchmark: float | None
    "Share solved, where the benchmark was read at this step."


def run_of(world: World, shape: RunShape, audited: int, onset: int, rng: np.random.Generator) -> list[Step]:
    """One run's steps."""
    quality = rising_quality(shape.steps, rng)
    if world is World.PLATEAU:
        quality = np.full(shape.steps, quality[0])
    drift = np.zeros(shape.steps)
    if world is World.HACKED:
        since = np.maximum(np.arange(shape.steps) - onset, 0)
        ramp = np.minimum(since / rng.uniform(20, 40), 1.0)
        drift = ramp * rng.uniform(2.0, 3.0)
        quality = np.where(since > 0, np.maximum(quality[onset] - 0.1 * ramp, 0.05), quality)
    steps = []
    for index in range(shape.steps):
        right = rng.random(shape.rollouts) < quality[index]
        lengths = rng.normal(size=shape.rollouts) + 0.3 * right + drift[index]
        main = np.where(right, rng.normal(0.75, 0.15, shape.rollouts), rng.normal(0.35, 0.15, shape.rollouts))
        scores = np.clip(main + JUDGE_BIAS * lengths, 0.0, 1.0)
        read = (index + 1) % shape.benchmark_every == 0
        solved = rng.binomial(shape.benchmark_items, quality[index]) / shape.benchmark_items
        steps.append(
            Step(scores=scores, lengths=lengths, verified=right[:audited], benchmark=float(solved) if read else None)
        )
    return steps
