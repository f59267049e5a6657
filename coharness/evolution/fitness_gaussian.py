"""Fitness from real-valued reports: decayed sums, a posterior over the mean, and what children inherit.

Beside `evidence`, which counts successes, for scores that are no success rates. A report made `d` versions ago weighs 2^(-d
/ half_life). What is not known yet is uncertain, not zero: the spread of single reports is shrunk towards `noise`, the
standard deviation that the user expects, and a clone starts with a share of its parent's weight, so that its mean is the
parent's and its error is larger.

Invariants: a pure fold; values survive any constant shift without loss (sums are taken about the mean).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special

from coharness.evolution.fitness import normal_quantile

CLONE_SHARE = 0.3
"""Share of a parent's evidence that a clone starts with."""
MERGE_SHARE = 0.1
"""Share of the parents' evidence that a merge starts with: a blend of weights is further from either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianFitness:
    """A normal posterior over a member's mean score; a `Judged`."""

    mean: float
    variance: float
    "Of the mean."
    num_effective: float
    "Reports that the evidence is worth."

    @property
    def num_empty(self) -> int:
        """1 without any evidence."""
        return int(self.num_effective <= 0)

    def probability_above(self, other: "GaussianFitness") -> float:
        """Posterior probability that this mean is higher; of two without any spread, by the means alone."""
        variance = self.variance + other.variance
        difference = self.mean - other.mean
        if variance == 0:
            return 0.5 + 0.5 * ((difference > 0) - (difference < 0))
        return float(special.ndtr(difference / math.sqrt(variance)))

    def quantile(self, q: float) -> float:
        """The posterior's q-quantile; see `Judged.quantile`."""
        return normal_quantile(self.mean, self.variance, q)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvidence:
    """Decayed sums over a member's reports, as of version `at`."""

    weight: float = 0.0
    "Sum of the weights w."
    squares: float = 0.0
    "Sum of w²."
    mean: float = 0.0
    "Weighted mean."
    scatter: float = 0.0
    "Weighted sum of squared distances from the mean."
    at: float = 0.0

    def observed(self, score: float, version: float, half_life: float) -> "GaussianEvidence":
        """The evidence with a report made at `version`, older than the newest or not; half_life 0 keeps the last report alone.

        Raises:
            ValueError: the score is not finite.
        """
        if not math.isfinite(score):
            raise ValueError(f"score: got {score}, expected a finite number; a failed report is no evidence")
        if half_life == 0:
            return GaussianEvidence(weight=1.0, squares=1.0, mean=score, at=version) if version >= self.at else self
        newest = max(self.at, version)
        old = self.faded(newest, half_life)
        w = _fade(newest - version, half_life)
        total = old.weight + w
        shift = score - old.mean
        return GaussianEvidence(
            weight=total,
            squares=old.squares + w * w,
            mean=old.mean + shift * w / total,
            scatter=old.scatter + shift * shift * w * old.weight / total,
            at=newest,
        )

    def faded(self, version: float, half_life: float) -> "GaussianEvidence":
        """The evidence as of a later version."""
        if half_life == 0 or version <= self.at:
            return self
        return self._scaled(_fade(version - self.at, half_life), version)

    def inherited(self, share: float, at: float) -> "GaussianEvidence":
        """What a child starts with, as of its version `at`: every weight times `share`, so the same mean with a larger error.

        Raises:
            ValueError: `share` is not in [0, 1].
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share: got {share}, expected 0 (nothing is inherited) to 1 (all of it)")
        if share == 0:
            return GaussianEvidence(at=at)
        scaled = self._scaled(share, at)
        # A clone knows as many reports as its parent, but they speak of it only in part: w² falls with w, and the number of
        # effective reports with the share.
        return replace(scaled, squares=self.squares * share)

    def read(self, noise: float, prior_reports: float = 1.0) -> GaussianFitness:
        """The posterior over the mean.

        Args:
            noise: standard deviation of a single report that is expected before any is seen; 0 to trust reports as they are.
            prior_reports: how many reports that expectation is worth against the spread that was seen.
        """
        if self.weight <= 0:
            return GaussianFitness(mean=self.mean, variance=math.inf, num_effective=0.0)
        effective = self.weight * self.weight / self.squares
        if noise == 0:
            return GaussianFitness(mean=self.mean, variance=0.0, num_effective=effective)
        freedom = max(effective - 1.0, 0.0)
        seen = self.scatter / self.weight * effective / freedom if freedom > 0 else 0.0
        spread = (prior_reports * noise * noise + freedom * seen) / (prior_reports + freedom)
        return GaussianFitness(mean=self.mean, variance=spread / effective, num_effective=effective)

    def _scaled(self, factor: float, at: float) -> "GaussianEvidence":
        return replace(
            self,
            weight=self.weight * factor,
            squares=self.squares * factor * factor,
            scatter=self.scatter * factor,
            at=at,
        )


def merged(parents: Sequence[GaussianEvidence], shares: Sequence[float], keep: float, at: float) -> GaussianEvidence:
    """What a merge starts with: the weighted mean of its parents' means, worth `keep` of their evidence.

    Args:
        parents: their evidence; those without any are left out.
        shares: one a parent, 0 or more.
        keep: share of the evidence; MERGE_SHARE for blends of weights.
        at: the child's version.
    """
    known = [(p, s) for p, s in zip(parents, shares, strict=True) if p.weight > 0 and s > 0]
    if not known or keep == 0:
        return GaussianEvidence(at=at)
    total = math.fsum(s for _, s in known)
    mean = math.fsum(p.mean * s for p, s in known) / total
    weight = math.fsum(p.weight * s for p, s in known) / total
    squares = math.fsum(p.squares * s for p, s in known) / total
    scatter = math.fsum((p.scatter + p.weight * (p.mean - mean) ** 2) * s for p, s in known) / total
    return GaussianEvidence(weight=weight, squares=squares, mean=mean, scatter=scatter, at=at).inherited(keep, at)


def _fade(versions: float, half_life: float) -> float:
    return float(0.5 ** (max(versions, 0.0) / half_life))
