"""What one hyperparameter of a search may be, and how it moves: the contract that every kind of domain keeps.

Invariants: every value that a domain hands out passes its own `check` and survives JSON. A move is symmetric in the transformed
space, so explore alone drifts nowhere; where a population moves, selection moved it. `at(features(x))` is x.

A step is a number of *units*. In a log or logit range one unit is 1 in the transformed space, so the default step of log 1.25
makes a learning rate 1.25 times or 1/1.25 times itself; in a linear range or a row of levels one unit is the whole range.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import numpy as np

Value = Any
"""A JSON value: number, text, truth value, list of numbers, or a mapping of names to values."""

STEP: Final = math.log(1.25)
"""Default step of a move, in units."""


class Noise(StrEnum):
    """How the size of a step is drawn."""

    SIGN = "sign"
    "Always one whole step, up or down."
    NORMAL = "normal"
    "A normal variate times the step."


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How a value is moved by explore."""

    step: float = STEP
    "In units; see the module."
    noise: Noise = Noise.SIGN
    switch: float = 0.25
    "Probability that an unordered choice becomes another one."
    resample: float = 0.25
    "Probability that a field of a tree is drawn from its prior instead."

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step) and self.step >= 0):
            raise ValueError(f"Move.step: got {self.step}, expected a number of units, 0 or more, such as log 1.25")
        for name, share in (("switch", self.switch), ("resample", self.resample)):
            if not 0 <= share <= 1:
                raise ValueError(f"Move.{name}: got {share}, expected a probability")

    def draw(self, rng: np.random.Generator) -> float:
        """A signed distance in units."""
        if self.noise is Noise.SIGN:
            return self.step if rng.random() < 0.5 else -self.step
        return self.step * float(rng.standard_normal())


class Domain(Protocol):
    """Where one hyperparameter may be."""

    @property
    def num_features(self) -> int:
        """Coordinates that `features` gives; 0 where the values have no order."""
        ...

    def sample(self, rng: np.random.Generator) -> Value:
        """A value drawn from the prior."""
        ...

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> Value:
        """A value near `value`.

        Raises:
            ValueError: `value` is not of the domain.
        """
        ...

    def clip(self, value: Value) -> Value:
        """The value of the domain that is nearest in the transformed space; ValueError where nothing is near."""
        ...

    def check(self, value: Value) -> None:
        """Accept a value of the domain.

        Raises:
            ValueError: `value` is not of the domain.
        """
        ...

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> Value:
        """What a merge of parents takes: the weighted mean in the transformed space, or the heaviest parent's value where the
        values have no mean; the first of equally heavy ones.
        """
        ...

    def features(self, value: Value) -> tuple[float, ...]:
        """Coordinates in [0, 1], uniform under a uniform prior."""
        ...

    def at(self, features: Sequence[float]) -> Value:
        """The value at these coordinates, `num_features` of them."""
        ...


def adapt_step(
    step: float, rng: np.random.Generator, *, rate: float = 0.3, low: float = 0.01, high: float = 2.0
) -> float:
    """A member's own step, passed on with a log-normal change and reflected at its bounds (self-adaptation; Schwefel, 1981).

    Args:
        step: the parent's step, in units, within the bounds.
        rng: where the change is drawn from.
        rate: standard deviation of the change of log(step).
        low: smallest step; above 0, since a step of 0 would be inherited for ever.
        high: largest step.
    """
    if not (0 < low < high and low <= step <= high):
        raise ValueError(f"step: got {step} within {low}..{high}, expected 0 < low <= step <= high, low < high")
    width = math.log(high / low)
    share = (math.log(step / low) + rate * float(rng.standard_normal())) / width % 2.0
    return min(max(low * math.exp(width * min(share, 2.0 - share)), low), high)


def check_blend(values: Sequence[Value], weights: Sequence[float]) -> None:
    """Accept the arguments of `Domain.blend`.

    Raises:
        ValueError: there is no parent, not one weight a parent, or the weights are negative or all 0.
    """
    if not values or len(values) != len(weights):
        raise ValueError(
            f"blend: got {len(values)} values and {len(weights)} weights, expected one weight a parent, at least one"
        )
    if not (all(math.isfinite(w) and w >= 0 for w in weights) and sum(weights) > 0):
        raise ValueError(f"blend: got the weights {list(weights)}, expected finite numbers of 0 or more, not all 0")


def heaviest(values: Sequence[Value], weights: Sequence[float]) -> Value:
    """The value with the largest weight, the first of several."""
    check_blend(values, weights)
    return values[max(range(len(values)), key=lambda i: (weights[i], -i))]


def is_number(value: Value) -> bool:
    """Whether a value is a finite number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
