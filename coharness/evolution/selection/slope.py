"""Rate of improvement: the member that still gets better fastest is copied, not the one that happens to be ahead.

Ranking by the score alone is greedy: a setting that pays at once wins over one that pays later. FIRE-PBT (Dalibard &
Jaderberg, 2021) ranks by how fast a member improves; here a line is fitted to each member's last reports, the rate is read
with its uncertainty, and only members that are not far behind the best are ranked at all.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from coharness.evolution.selection.contract import Change, Forgetful, Individual, Population, clone


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """A fitted rate of improvement."""

    rate: float
    "Score for each unit of work."
    error: float
    "Standard error; infinite with fewer than three reports."
    freedom: int
    "Degrees of freedom of that error."

    def bound(self, q: float) -> float:
        """The q-quantile of the rate by Student's t."""
        if self.freedom < 1:
            return math.inf if q > 0.5 else -math.inf
        return self.rate + self.error * float(special.stdtrit(self.freedom, q))


def fit_slope(curve: tuple[tuple[float, float], ...]) -> Slope:
    """Least squares of score on work, points (work, score)."""
    num = len(curve)
    if num < 2:
        return Slope(rate=0.0, error=math.inf, freedom=0)
    x, y = np.asarray(curve, dtype=np.float64).T
    dx = x - x.mean()
    spread = float(dx @ dx)
    if spread == 0:
        return Slope(rate=0.0, error=math.inf, freedom=0)
    rate = float(dx @ y) / spread
    residual = y - y.mean() - rate * dx
    freedom = num - 2
    error = math.sqrt(float(residual @ residual) / freedom / spread) if freedom else math.inf
    return Slope(rate=rate, error=error, freedom=freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlopeExploit(Forgetful):
    """Copy the member with the best optimistic rate among those within `behind` of the best score."""

    window: int = 8
    "Reports that the line is fitted to."
    behind: float = 0.1
    "How far a member may be behind the best and still be ranked, as a share of the range of scores."
    bound: float = 0.9
    "A member that is ranked gives way where this quantile of its rate is below the opposite one of the donor's."

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        known = [member for member in population.members if member.is_known]
        if len(known) < 2 or ready not in {member.name for member in known}:
            return None
        scores = [member.fitness.mean for member in known]
        floor = max(scores) - self.behind * (max(scores) - min(scores))
        ranked = {m.name: self._slope(m) for m in known if m.fitness.mean >= floor}
        donors = [name for name in ranked if name != ready]
        if not donors:
            return None
        donor = max(donors, key=lambda name: (ranked[name].bound(self.bound), population.member(name).fitness.mean))
        if ready not in ranked:
            return clone(ready, donor, f"more than {self.behind:g} of the range behind; {donor} improves fastest")
        if ranked[ready].bound(self.bound) < ranked[donor].bound(1 - self.bound):
            return clone(ready, donor, f"{donor} improves faster", probability=self.bound)
        return None

    def _slope(self, member: Individual) -> Slope:
        return fit_slope(member.curve[-self.window :])
