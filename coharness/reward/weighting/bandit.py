"""Which of a few presets of weights to train under next, learned from what each brought.

An arm is a preset; its payoff is the gain of the benchmark on anchors for what it cost, scaled to [0, 1] by whoever measures. The
policy moves meanwhile, so nothing is identically distributed: Exp3 assumes nothing of payoffs, Thompson sampling forgets.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Exp3:
    """Exponential weights with exploration (Auer, Cesa-Bianchi, Freund and Schapire, 2002).

    Expected regret against the best single arm after T payoffs in [0, 1] of K arms is at most 2 sqrt(e - 1) sqrt(T K ln K) where
    gamma = min(1, sqrt(K ln K / ((e - 1) T))), which `for_horizon` sets.
    """

    gamma: float
    "Share of choices that are uniform."
    log_weights: tuple[float, ...]

    @classmethod
    def for_horizon(cls, num_arms: int, num_rounds: int) -> "Exp3":
        """Before any choice.

        Raises:
            ValueError: fewer than 2 arms or 1 round.
        """
        if num_arms < 2 or num_rounds < 1:
            raise ValueError(f"got {num_arms} arms and {num_rounds} rounds, expected at least 2 and 1")
        gamma = math.sqrt(num_arms * math.log(num_arms) / ((math.e - 1) * num_rounds))
        return cls(gamma=min(1.0, gamma), log_weights=(0.0,) * num_arms)

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """Chance of each arm [K]."""
        logs = np.asarray(self.log_weights)
        weights = np.exp(logs - logs.max())
        return np.asarray((1 - self.gamma) * weights / weights.sum() + self.gamma / len(weights))

    def choose(self, rng: np.random.Generator) -> int:
        """An arm."""
        return int(rng.choice(len(self.log_weights), p=self.probabilities))

    def observed(self, arm: int, payoff: float) -> "Exp3":
        """After the chosen arm's payoff in [0, 1]."""
        _check(arm, len(self.log_weights), payoff)
        estimate = payoff / float(self.probabilities[arm])
        logs = list(self.log_weights)
        logs[arm] += self.gamma * estimate / len(logs)
        return replace(self, log_weights=tuple(logs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thompson:
    """Thompson sampling with Gaussian payoffs of known spread, old ones discounted (Thompson, 1933; Raj and Kalyani, 2017)."""

    counts: tuple[float, ...]
    "Discounted number of payoffs of each arm."
    sums: tuple[float, ...]
    prior_mean: float = 0.5
    prior_spread: float = 0.5
    spread: float = 0.25
    "Standard deviation of one payoff."
    discount: float = 0.95
    "What a payoff counts a round later."

    @classmethod
    def start(cls, num_arms: int, *, discount: float = 0.95) -> "Thompson":
        """Before any choice.

        Raises:
            ValueError: fewer than 2 arms, or a discount outside (0, 1].
        """
        if num_arms < 2 or not 0 < discount <= 1:
            raise ValueError(
                f"got {num_arms} arms and discount {discount!r}, expected at least 2 and a number in (0, 1]"
            )
        return cls(counts=(0.0,) * num_arms, sums=(0.0,) * num_arms, discount=discount)

    @property
    def posterior(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Mean and standard deviation of each arm's payoff, both [K]."""
        precision = 1 / self.prior_spread**2 + np.asarray(self.counts) / self.spread**2
        mean = (self.prior_mean / self.prior_spread**2 + np.asarray(self.sums) / self.spread**2) / precision
        return np.asarray(mean), np.asarray(1 / np.sqrt(precision))

    def choose(self, rng: np.random.Generator) -> int:
        """The arm that a draw from the posterior thinks best."""
        mean, deviation = self.posterior
        return int(np.argmax(rng.normal(mean, deviation)))

    def observed(self, arm: int, payoff: float) -> "Thompson":
        """After the chosen arm's payoff in [0, 1]."""
        _check(arm, len(self.counts), payoff)
        counts, sums = ([self.discount * x for x in kept] for kept in (self.counts, self.sums))
        counts[arm] += 1.0
        sums[arm] += payoff
        return replace(self, counts=tuple(counts), sums=tuple(sums))


def _check(arm: int, num_arms: int, payoff: float) -> None:
    if not 0 <= arm < num_arms:
        raise ValueError(f"got arm {arm}, expected 0 to {num_arms - 1}")
    if not 0.0 <= payoff <= 1.0:
        raise ValueError(
            f"got payoff {payoff!r}, expected a number in [0, 1]; scale gains by their range and clip them"
        )
