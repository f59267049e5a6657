"""Population-based bandits: truncation says who changes, a bandit over settings says to what (PB2; Parker-Holder et al., 2020).

Every finished interval is a datum: this setting, at that time, gained so much score for each unit of work. A Gaussian
process that forgets predicts the gain of settings at the present time, in the coordinates of the typed space, so that a
learning rate is searched by its order of magnitude. The setting with the highest mean + sqrt(beta) standard deviations is
taken; settings in flight count as seen, which shrinks the deviation around them. Options without order are drawn by `exp3`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coharness.evolution.selection.contract import Change, Genes, Individual, Interval, Population, Selector
from coharness.evolution.selection.exp3 import option_probabilities
from coharness.evolution.selection.gaussian_process import GaussianProcess, condition, fit
from coharness.spaces.discrete import Choice
from coharness.spaces.domain import Value
from coharness.spaces.tree import Tree, flat

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PB2:
    """Another rule's changes, with settings from a bandit."""

    inner: Selector
    space: Tree
    min_rows: int = 4
    "Finished intervals that the bandit needs; with fewer, settings are explored as the inner rule says."
    max_rows: int = 500
    "Intervals that the process is fitted to, the latest ones."
    num_candidates: int = 1024
    "Settings that the acquisition is looked up at before the best ones are refined."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        change = self.inner.choose(population, ready, rng)
        rows = _finite(population.intervals)[-self.max_rows :]
        if change is None or not change.copies or len(rows) < self.min_rows:
            return change
        given = self.propose(rows, population, rng)
        return replace(change, genes=Genes.GIVEN, hyperparameters=given, why=f"{change.why}; setting by the bandit")

    def remember(self, elites: tuple[Individual, ...], newcomer: Individual) -> tuple[Individual, ...]:
        """The inner rule's archive."""
        return self.inner.remember(elites, newcomer)

    def propose(self, rows: list[Interval], population: Population, rng: np.random.Generator) -> dict[str, Value]:
        """The setting that the bandit would try next."""
        rates = np.asarray([row.gain / (row.end - row.begin) for row in rows])
        choices = self._choices(rows, rates, rng)
        if self.space.num_features == 0:
            return self.space.build((), choices)
        x = np.asarray([self.space.features(row.hyperparameters) for row in rows])  # [n, d]
        t = np.asarray([row.time for row in rows])
        process = fit(x, t, standardised(rates))
        pending = np.asarray([self.space.features(p) for p in population.pending]).reshape(-1, x.shape[1])
        seen = with_pending(process, pending, population.time)
        best = maximise(process, seen, confidence(len(rows)), population.time, self.num_candidates, rng)
        return self.space.build(best, choices)

    def _choices(self, rows: list[Interval], rates: Array, rng: np.random.Generator) -> dict[str, Value]:
        """An option for every unordered choice, by dotted path."""
        low, high = float(rates.min()), float(rates.max())
        rewards = (rates - low) / (high - low) if high > low else np.full(len(rates), 0.5)
        settings = [flat(row.hyperparameters) for row in rows]
        picked: dict[str, Value] = {}
        for path, domain in self.space.leaves():
            if isinstance(domain, Choice):
                seen = [
                    (domain.options.index(setting[path]), float(reward))
                    for setting, reward in zip(settings, rewards, strict=True)
                    if path in setting
                ]
                edges = np.cumsum(option_probabilities(len(domain.options), seen))
                place = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
                picked[path] = domain.options[min(place, len(edges) - 1)]
        return picked


def confidence(num_rows: int) -> float:
    """The exploration weight beta after so many observations, as PB2's authors set it."""
    return 0.2 + max(0.0, math.log(0.4 * num_rows))


def standardised(values: Array) -> Array:
    """Zero mean, unit deviation, cut off at two deviations: one failed interval must not flatten all others."""
    spread = float(values.std())
    if spread == 0:
        return np.zeros_like(values)
    found: Array = np.clip((values - values.mean()) / spread, -2.0, 2.0)
    return found


def with_pending(process: GaussianProcess, pending: Array, time: float) -> GaussianProcess:
    """The process with settings in flight taken for observed at their own mean, which moves deviations and no mean."""
    if len(pending) == 0:
        return process
    times = np.full(len(pending), time)
    return condition(
        process.kernel,
        np.vstack([process.x, pending]),
        np.concatenate([process.t, times]),
        np.concatenate([process.y, process.mean(pending, times)]),
    )


def maximise(
    process: GaussianProcess,
    seen: GaussianProcess,
    beta: float,
    time: float,
    num_candidates: int,
    rng: np.random.Generator,
) -> list[float]:
    """The point of the unit cube with the highest upper bound: uniform candidates, then shrinking steps around the best.

    Rounded to six digits, so that the last bits of a linear algebra library do not show in a setting.
    """
    num_features = process.x.shape[1]

    def bound(points: Array) -> Array:
        times = np.full(len(points), time)
        found: Array = process.mean(points, times) + math.sqrt(beta) * seen.deviation(points, times)
        return found

    points = np.vstack([rng.random((num_candidates, num_features)), process.x])
    values = bound(points)
    best = points[int(values.argmax())]
    value = float(values.max())
    width = 0.1
    while width > 1e-4:
        near = np.clip(best + width * rng.uniform(-1, 1, (32, num_features)), 0.0, 1.0)
        values = bound(near)
        if float(values.max()) > value:
            best, value = near[int(values.argmax())], float(values.max())
        else:
            width /= 2
    return [round(float(u), 6) for u in best]


def _finite(intervals: tuple[Interval, ...]) -> list[Interval]:
    return [row for row in intervals if math.isfinite(row.gain) and row.end > row.begin]
