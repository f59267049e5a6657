"""Conflicts between judge and verifier, the detector that tells hacking from learning.

A conflict is an audited rollout that the judge rates high and the verifier fails. Its rate is tested against `healthy_rate` by
a mixture e-detector of the Shiryaev-Roberts form: for each alternative rate, R <- (1 + R) L with the batch's likelihood ratio L.
Under any rate up to the healthy one, the mixture minus the number of steps is a supermartingale, so the chance that it reaches
N / α within N steps is at most α (Shin, Ramdas and Rinaldo, 2023; the bound is Doob's). The Page form beside it dates the onset.

    healthy_rate .05, 16 audits a step: a jump to .25 is seen after about eight steps
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from coharness.stats.proportions import clopper_pearson

_RATIOS = (1.5, 2.0, 3.0, 5.0, 8.0)
"""Alternatives as multiples of the healthy odds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictDetector:
    """The detector after some steps."""

    healthy_rate: float
    horizon: int
    "Steps of a run for which the rate of false alarms is stated."
    alpha: float
    "Chance of a false alarm within the horizon."
    log_statistics: tuple[float, ...]
    "Log of each alternative's Shiryaev-Roberts statistic."
    log_page: tuple[float, ...]
    "Log of each alternative's Page statistic, restarted at 0."
    page_start: tuple[int, ...]
    "Step after which each Page statistic last restarted."
    steps: int = 0

    @classmethod
    def start(cls, healthy_rate: float, *, horizon: int = 200, alpha: float = 0.05) -> "ConflictDetector":
        """The detector before any step.

        Raises:
            ValueError: a rate outside (0, 1), a horizon below 1, or alpha outside (0, 1).
        """
        if not 0 < healthy_rate < 1 or not 0 < alpha < 1 or horizon < 1:
            raise ValueError(
                f"got healthy_rate={healthy_rate!r}, horizon={horizon!r}, alpha={alpha!r}; expected rates in (0, 1) and a "
                "horizon of 1 or more; healthy_rate_of gives a rate from a warm-up"
            )
        n = len(_RATIOS)
        return cls(
            healthy_rate=healthy_rate,
            horizon=horizon,
            alpha=alpha,
            log_statistics=(-math.inf,) * n,
            log_page=(0.0,) * n,
            page_start=(0,) * n,
        )

    def observed(self, num_conflicts: int, num_audited: int) -> "ConflictDetector":
        """The detector after one step's audits; a step without any changes nothing but the count."""
        if not 0 <= num_conflicts <= num_audited:
            raise ValueError(f"got {num_conflicts} conflicts of {num_audited} audited, expected 0 up to as many")
        step = self.steps + 1
        statistics, page, starts = [], [], []
        for index, ratio in enumerate(_RATIOS):
            log_ratio = self._log_ratio(ratio, num_conflicts, num_audited)
            statistics.append(_log_one_plus_exp(self.log_statistics[index]) + log_ratio)
            total = self.log_page[index] + log_ratio
            page.append(max(total, 0.0))
            starts.append(self.page_start[index] if total > 0.0 else step)
        return replace(
            self, log_statistics=tuple(statistics), log_page=tuple(page), page_start=tuple(starts), steps=step
        )

    def _log_ratio(self, ratio: float, num_conflicts: int, num_audited: int) -> float:
        odds = ratio * self.healthy_rate / (1 - self.healthy_rate)
        rate = odds / (1 + odds)
        hit, miss = math.log(rate / self.healthy_rate), math.log((1 - rate) / (1 - self.healthy_rate))
        return num_conflicts * hit + (num_audited - num_conflicts) * miss

    @property
    def log_evidence(self) -> float:
        """Log of the mixture, to be held against `log_threshold`; -inf before the first step."""
        if self.steps == 0:
            return -math.inf
        return float(np.logaddexp.reduce(self.log_statistics)) - math.log(len(_RATIOS))

    @property
    def log_threshold(self) -> float:
        """log(horizon / alpha)."""
        return math.log(self.horizon / self.alpha)

    @property
    def alarms(self) -> bool:
        """Whether the evidence has reached the threshold at this step."""
        return self.log_evidence >= self.log_threshold

    @property
    def onset(self) -> int:
        """The step after which the rate rose, by the alternative that explains the data best."""
        return self.page_start[int(np.argmax(self.log_page))]


def _log_one_plus_exp(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def healthy_rate_of(num_conflicts: int, num_audited: int, *, level: float = 0.95) -> float:
    """A healthy rate from a warm-up: the upper end of its exact interval, so that a lucky warm-up raises no alarms later.

    Raises:
        ValueError: impossible counts.
    """
    return min(max(clopper_pearson(num_conflicts, num_audited, level).high, 1e-3), 0.999)
