"""Toy problems with known answers; each is a trainable of `coharness.tune`, small enough for thousands of steps a second.

Quadratic     what Figure 2 of population based training shows (Jaderberg et al., 2017)
Triangle      the best learning rate rises and falls with progress (Ray Tune's `pbt_function` example)
TwoNiches     many cases reward one skill, few another; a scalar mean loses the specialist
Latency       flat ground, with members that take 1 or 4 units of time a step
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class _Saved:
    """A toy whose whole state is JSON: numbers, and its generator."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.hyperparameters = dict(hyperparameters)
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.state: dict[str, float] = {}

    def save(self, folder: Path) -> None:
        """Write the state and the generator."""
        (folder / "state.json").write_text(json.dumps([self.state, self.rng.bit_generator.state]), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Read them back."""
        self.state, generator = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        self.rng.bit_generator.state = generator

    def apply(self, hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take new hyperparameters."""
        self.hyperparameters = dict(hyperparameters)
        return self.hyperparameters

    def reseed(self, seed: int) -> None:
        """Start the generator anew."""
        self.rng = np.random.Generator(np.random.PCG64(seed))


class Quadratic(_Saved):
    """Climb Q = 1.2 - x0^2 - x1^2 along the gradient of 1.2 - h0 x0^2 - h1 x1^2; the score is Q itself.

    With the settings (1, 0) and (0, 1) neither member alone can get beyond 0.39; exchanging weights and settings they reach 1.2.
    """

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        super().__init__(hyperparameters, seed)
        self.state = {"x0": 0.9, "x1": 0.9}

    def step(self) -> dict[str, float]:
        """One step; see the class."""
        for i in (0, 1):
            self.state[f"x{i}"] -= 0.01 * 2 * float(self.hyperparameters[f"h{i}"]) * self.state[f"x{i}"]
        return {"score": 1.2 - self.state["x0"] ** 2 - self.state["x1"] ** 2}


class Triangle(_Saved):
    """Accuracy rises fastest at a learning rate that is .001 at 0, .01 at 100 and .001 again at 200, with noise."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        super().__init__(hyperparameters, seed)
        self.state = {"accuracy": 0.0}

    def step(self) -> dict[str, float]:
        """One step; see the class."""
        accuracy, rate = self.state["accuracy"], float(self.hyperparameters["lr"])
        best = 0.01 * accuracy / 100 if accuracy < 100 else 0.01 - 0.01 * (accuracy - 100) / 100
        best = min(0.01, max(0.001, best))
        error = max(rate, best) / min(rate, best)
        if error < 3:
            accuracy += self.rng.random() / error
        elif rate > best:
            accuracy -= (error - 3) * self.rng.random()
        accuracy = max(0.0, accuracy + 2 * self.rng.standard_normal())
        self.state["accuracy"] = accuracy
        return {"score": accuracy}


NUM_COMMON, NUM_RARE = 6, 2
CASES = tuple(f"case{i}" for i in range(NUM_COMMON + NUM_RARE))


class TwoNiches(_Saved):
    """Two skills that crowd each other out; `focus` says which is practised. Six cases ask for the first, two for the second.

    A case is passed where its skill is above the case's own mark, so single cases are rugged and the mean is a staircase.
    """

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        super().__init__(hyperparameters, seed)
        self.state = {"common": 0.0, "rare": 0.0}

    def step(self) -> dict[str, float]:
        """One step; see the class."""
        focus = float(self.hyperparameters["focus"])
        common, rare = self.state["common"], self.state["rare"]
        self.state["common"] = common + 0.05 * (focus**2 * (1 - common) - (1 - focus) * common)
        self.state["rare"] = rare + 0.05 * ((1 - focus) ** 2 * (1 - rare) - focus * rare)
        marks = [(self.state["common"], (i + 1) / (NUM_COMMON + 1)) for i in range(NUM_COMMON)]
        marks += [(self.state["rare"], (3 * i + 1) / (NUM_COMMON + 1)) for i in range(NUM_RARE)]
        passed = {name: float(skill > mark) for name, (skill, mark) in zip(CASES, marks, strict=True)}
        return {"score": sum(passed.values()) / len(passed), **passed, **self.state}


class Latency(_Saved):
    """Nothing to learn: the score is noise, and `speed` says how long a step takes (`fast` 1, `slow` 4 units of virtual time)."""

    def step(self) -> dict[str, float]:
        """One step; see the class."""
        return {
            "score": float(self.rng.standard_normal()),
            "cost": 1.0 if self.hyperparameters["speed"] == "fast" else 4.0,
        }
