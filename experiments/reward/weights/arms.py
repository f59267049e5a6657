"""Ways of setting weights over one training of the toy policy; each pays for what it measures from the same budget."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coharness.reward.weighting.bandit import Exp3, Thompson
from coharness.reward.weighting.bilevel import anchor_gradient, spsa_gradient, step
from coharness.reward.weighting.phases import Phase, PhaseSchedule
from coharness.reward.weighting.simplex import Weights, moved
from experiments.reward.weights.world import CRITERIA, Array, World

BUDGET = 240
"""Updates, readings of the benchmark and audits together, by their prices."""
ROUND = 12
"""Updates between two decisions."""
READING_PRICE = 4
"""Updates that one reading of the benchmark costs; an update draws 16 answers, a reading 64."""
AUDIT_PRICE = 0.5
"""Updates that one settled comparison of the policy's own answers costs."""
NUM_ANCHORS = 60
"""Settled once, before anything; every arm might have them and they cost none of the budget."""
NUM_AUDITS = 4
RATE = 0.05
"""Of gradient steps on the weights."""
PAYOFF_RANGE = 0.1
"""Gain of the benchmark over a round that counts as a payoff of 1; a loss as large counts as 0."""

EQUAL = np.full(len(CRITERIA), 1 / len(CRITERIA))
PRESETS = 0.4 * EQUAL + 0.6 * np.eye(len(CRITERIA))
"""One preset a criterion: six tenths for it, the rest shared by all [K, K]."""
SCHEDULE = PhaseSchedule(
    phases=(
        Phase(name="form", until=0.25, weights=dict(zip(CRITERIA, (3, 1, 0, 1, 1), strict=True))),
        Phase(name="correctness", until=0.7, weights=dict(zip(CRITERIA, (1, 4, 1, 0, 0), strict=True))),
        Phase(name="robustness", until=1.0, weights=dict(zip(CRITERIA, (1, 2, 3, 1, 0), strict=True))),
    )
)
"""Written by the rule of thumb: exploration of form, then correctness, then robustness and cost."""


@dataclass(slots=True)
class Training:
    """One policy in training: what is left, and where it stands."""

    world: World
    rng: np.random.Generator
    skills: Array
    left: float = BUDGET

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return 1 - max(self.left, 0.0) / BUDGET

    def run(self, weights: Weights, updates: int = ROUND) -> None:
        """Some updates, as many as the budget still allows."""
        for _ in range(updates):
            if self.left < 1:
                return
            self.skills = self.world.update(self.skills, weights, self.rng)
            self.left -= 1

    def read(self) -> float:
        """The benchmark, paid for."""
        self.left -= READING_PRICE
        return self.world.benchmark(self.skills, self.rng)

    def audit(self) -> Array:
        """Fresh comparisons, paid for."""
        self.left -= NUM_AUDITS * AUDIT_PRICE
        return self.world.audits(self.skills, NUM_AUDITS, self.rng)


def fixed(training: Training, weights: Weights) -> None:
    """The control."""
    while training.left >= 1:
        training.run(weights)


def equal(training: Training) -> None:
    """All criteria alike for ever."""
    fixed(training, EQUAL)


def phases(training: Training) -> None:
    """The schedule, as it was written."""
    while training.left >= 1:
        weights = SCHEDULE.at(training.progress)
        training.run(np.asarray([weights[name] for name in CRITERIA]), 1)


def phases_mean(training: Training) -> None:
    """The schedule's own mean over the budget, for ever: what it knows of the criteria, without its order."""
    told = [SCHEDULE.at((n + 0.5) / BUDGET) for n in range(BUDGET)]
    fixed(training, np.asarray([np.mean([weights[name] for weights in told]) for name in CRITERIA]))


def exp3(training: Training) -> None:
    """A bandit over the presets and equal weights, paid by the benchmark's gain."""
    arms = np.vstack([PRESETS, EQUAL])
    bandit = Exp3.for_horizon(len(arms), int(BUDGET / (ROUND + READING_PRICE)))
    before = training.read()
    while training.left >= ROUND + READING_PRICE:
        arm = bandit.choose(training.rng)
        training.run(arms[arm])
        after = training.read()
        bandit, before = bandit.observed(arm, _payoff(after - before)), after
    training.run(bandit.probabilities @ arms, BUDGET)


def thompson(training: Training) -> None:
    """Thompson sampling over the same arms."""
    arms = np.vstack([PRESETS, EQUAL])
    bandit = Thompson.start(len(arms))
    before = training.read()
    while training.left >= ROUND + READING_PRICE:
        arm = bandit.choose(training.rng)
        training.run(arms[arm])
        after = training.read()
        bandit, before = bandit.observed(arm, _payoff(after - before)), after
    training.run(arms[int(np.argmax(bandit.posterior[0]))], BUDGET)


def bilevel_frozen(training: Training) -> None:
    """A step up the frozen anchors' likelihood before every round."""
    anchors = training.world.anchors(NUM_ANCHORS, training.rng)
    weights = EQUAL
    while training.left >= 1:
        weights = step(weights, anchor_gradient(weights, anchors), rate=RATE)
        training.run(weights)


def bilevel(training: Training) -> None:
    """The same, with fresh audits of the policy's own answers added every round, each counting as three anchors."""
    anchors = training.world.anchors(NUM_ANCHORS, training.rng)
    weights = EQUAL
    while training.left >= 1:
        anchors = np.vstack([anchors, np.repeat(training.audit(), 3, axis=0)])
        weights = step(weights, anchor_gradient(weights, anchors), rate=RATE)
        training.run(weights)


def two_evaluations(training: Training) -> None:
    """The outer gradient through the policy itself: two half rounds under weights to either side, read by the benchmark."""
    weights = EQUAL

    def gain(tried: Weights) -> float:
        before = training.read()
        training.run(tried, ROUND // 2)
        return training.read() - before

    while training.left >= ROUND + 4 * READING_PRICE:
        gradient = spsa_gradient(gain, weights, training.rng)
        weights = step(weights, gradient, rate=RATE)
    training.run(weights, BUDGET)


def random(training: Training) -> None:
    """Weights drawn anew from the simplex before every round: whether change by itself does anything."""
    weights = EQUAL
    while training.left >= 1:
        weights = moved(weights, training.rng.dirichlet(np.ones(len(CRITERIA))), 0.3)
        training.run(weights)


def _payoff(gain: float) -> float:
    return float(np.clip(0.5 + gain / (2 * PAYOFF_RANGE), 0.0, 1.0))


ARMS: dict[str, Callable[[Training], None]] = {
    "equal": equal,
    "phases": phases,
    "phases_mean": phases_mean,
    "exp3": exp3,
    "thompson": thompson,
    "bilevel_frozen": bilevel_frozen,
    "bilevel": bilevel,
    "two_evaluations": two_evaluations,
    "random": random,
}


def candidates() -> Array:
    """Fixed weights of which the strongest control is chosen on worlds of its own: all with shares of quarters [C, K]."""
    k = len(CRITERIA)
    grid = [np.asarray(point) for point in np.ndindex(*(5,) * k) if sum(point) == 4]
    return np.asarray([EQUAL, *(point / 4 for point in grid)])
