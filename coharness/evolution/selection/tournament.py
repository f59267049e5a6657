"""Binary tournament: a member meets one opponent, drawn uniformly, and copies it where it lost (Jaderberg et al., 2017).

By score alone the better of two wins. By Welch's test it must be better on the last reports of both, so that noise copies less.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from coharness.evolution.selection.contract import Change, Forgetful, Population, clone, pick


class Duel(StrEnum):
    """How a tournament is decided."""

    SCORE = "score"
    "By the higher posterior mean."
    WELCH = "welch"
    "By the higher mean of the last reports, where Welch's one-sided test is significant."


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament(Forgetful):
    """Copy a uniformly drawn opponent that wins."""

    duel: Duel = Duel.SCORE
    level: float = 0.05
    "Significance level of Welch's test."
    window: int = 10
    "Reports of either side that the test reads."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        me = population.member(ready)
        opponents = list(population.others(ready))
        if not opponents or not me.is_known:
            return None
        other = pick(opponents, rng)
        if self.duel is Duel.SCORE:
            if other.fitness.mean <= me.fitness.mean:
                return None
            return clone(ready, other.name, f"lost to {other.name} by score")
        p = welch_p_value([s for _, s in other.curve[-self.window :]], [s for _, s in me.curve[-self.window :]])
        if p >= self.level:
            return None
        return clone(ready, other.name, f"lost to {other.name}, p = {p:.2g}", probability=1 - p)


def welch_p_value(higher: list[float], lower: list[float]) -> float:
    """One-sided p-value of "the first mean is not above the second", without equal variances (Welch, 1947).

    1 with fewer than two values on a side; without any spread, 0 or 1 by the means.
    """
    if len(higher) < 2 or len(lower) < 2:
        return 1.0
    a, b = np.var(higher, ddof=1) / len(higher), np.var(lower, ddof=1) / len(lower)
    difference = float(np.mean(higher) - np.mean(lower))
    if a + b == 0:
        return 0.0 if difference > 0 else 1.0
    freedom = (a + b) ** 2 / (a * a / (len(higher) - 1) + b * b / (len(lower) - 1))
    return float(special.stdtr(freedom, -difference / math.sqrt(a + b)))
