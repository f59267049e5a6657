"""Small populations for tests of selection rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from coharness.evolution.fitness_gaussian import GaussianFitness
from coharness.evolution.selection.contract import Individual, Population, Score


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def person(name: str, mean: float, error: float = 0.0, **more: Any) -> Individual:
    more.setdefault("clan", name)
    more.setdefault("hyperparameters", {})
    more.setdefault("age", 100.0)
    for key in ("cases", "objectives"):
        if key in more:
            more[key] = tuple(s if isinstance(s, Score) else Score(s) for s in more[key])
    return Individual(name=name, fitness=GaussianFitness(mean=mean, variance=error**2, num_effective=4.0), **more)


def people(means: Sequence[float], error: float = 0.0, **more: Any) -> Population:
    return Population(members=tuple(person(f"p{i}", mean, error, **more) for i, mean in enumerate(means)))


def unknown(name: str) -> Individual:
    nothing = GaussianFitness(mean=0.0, variance=np.inf, num_effective=0.0)
    return Individual(name=name, fitness=nothing, hyperparameters={}, clan=name)
