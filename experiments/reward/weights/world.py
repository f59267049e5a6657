"""A toy policy that follows a weighted reward of five criteria, and the worth that the criteria only stand for.

The policy has a skill a criterion; a criterion reads sigmoid(skill), so that what is nearly met teaches little. Each update moves
the skills by a step of fixed length along the reward's noisy gradient: weight on one criterion is effort taken from the others.
The worth is format^a times (b correct + (1 - b) correct robust), less what flattery beyond one half costs: no weighted sum of the
criteria. Every world draws its own exponents, costs, speeds of learning and first skills from ranges that are fixed here.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]
CRITERIA = ("format", "correct", "robust", "brief", "flattering")
STEP = 0.12
"""Length of an update in skill."""
GRADIENT_NOISE = 0.02
"""Standard deviation of each component of the reward's gradient, beside gradients of about .03 to .1."""
BENCHMARK_ITEMS = 64
"""Items of one reading of the benchmark: its noise is binomial."""
LABEL_NOISE = 0.1
"""Share of settled comparisons that are settled wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One draw of what is true."""

    first: Array
    "Skills at the start [K]."
    speed: Array
    "How fast each skill is learned [K]."
    format_power: float
    plain_share: float
    "b: how much of the worth of a correct answer needs no robustness."
    flattery_cost: float
    brief_value: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "World":
        """A world."""
        k = len(CRITERIA)
        return cls(
            first=rng.normal([-0.5, -1.5, -2.0, -0.5, -1.0], 0.4),
            speed=rng.lognormal(0.0, 0.3, k),
            format_power=float(rng.uniform(0.3, 1.0)),
            plain_share=float(rng.uniform(0.3, 0.9)),
            flattery_cost=float(rng.uniform(0.0, 0.8)),
            brief_value=float(rng.uniform(0.0, 0.1)),
        )

    def worth(self, values: Array) -> Array:
        """What answers with these criteria are worth, in [0, 1]: [..., K] -> [...]."""
        form, correct, robust, brief, flattering = np.moveaxis(values, -1, 0)
        core = form**self.format_power * (self.plain_share * correct + (1 - self.plain_share) * correct * robust)
        spoiled = core * (1 - self.flattery_cost * np.maximum(flattering - 0.5, 0.0) * 2)
        return np.asarray((1 - self.brief_value) * spoiled + self.brief_value * brief)

    def update(self, skills: Array, weights: Array, rng: np.random.Generator) -> Array:
        """Skills after one update under these weights; both [..., K]."""
        values = special.expit(skills)
        gradient = weights * values * (1 - values) * self.speed + rng.normal(0.0, GRADIENT_NOISE, skills.shape)
        length = np.linalg.norm(gradient, axis=-1, keepdims=True)
        return np.asarray(skills + STEP * gradient / np.maximum(length, 1e-9))

    def benchmark(self, skills: Array, rng: np.random.Generator) -> float:
        """The worth as a benchmark reads it: a share of items solved."""
        return float(rng.binomial(BENCHMARK_ITEMS, float(self.worth(special.expit(skills))))) / BENCHMARK_ITEMS

    def anchors(self, num: int, rng: np.random.Generator) -> Array:
        """Frozen comparisons of answers of all kinds: criteria of the better less those of the worse [num, K]."""
        return self._settled(rng.beta(0.8, 0.8, (num, 2, len(CRITERIA))), rng)

    def audits(self, skills: Array, num: int, rng: np.random.Generator) -> Array:
        """Fresh comparisons of two answers of the policy as it is now [num, K]."""
        values = special.expit(skills + rng.normal(0.0, 0.8, (num, 2, len(CRITERIA))))
        return self._settled(values, rng)

    def _settled(self, values: Array, rng: np.random.Generator) -> Array:
        worth = self.worth(values)  # [num, 2]
        first_better = (worth[:, 0] > worth[:, 1]) ^ (rng.random(len(values)) < LABEL_NOISE)
        difference = values[:, 0] - values[:, 1]
        return np.asarray(np.where(first_better[:, None], difference, -difference))
