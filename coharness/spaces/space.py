"""Kinds of space: a real or whole range, and a set of choices; sampling, perturbing and checking values of them.

Invariants: every value that a space hands out passes its own `check`. `perturb` is symmetric in the transformed space: going
from x to y is as likely as going from y to x. So explore alone leaves values uniform over the transformed range; it neither
drifts nor piles up at a bound, and where a population moves, selection moved it. Driven by initialisation and by explore.

Values are floats throughout, because a member's hyperparameters are (`records.policy.Hyperparameters`).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np


class Scale(StrEnum):
    """In which coordinate a range is uniform, and steps have the same size everywhere."""

    LINEAR = "linear"
    "The value itself."
    LOG = "log"
    "Its logarithm: steps are factors (learning rates)."
    LOGIT = "logit"
    "Its log-odds: steps shrink towards 0 and 1 (probabilities, decay rates)."


class Space(Protocol):
    """Where one hyperparameter may be."""

    def sample(self, rng: np.random.Generator) -> float:
        """A value drawn uniformly in the transformed space."""
        ...

    def perturb(self, value: float, rng: np.random.Generator, step: float) -> float:
        """A value near `value`; `step` is the standard deviation of the move as a share of the range.

        Raises:
            ValueError: `value` is not in the space, or `step` is negative or not finite.
        """
        ...

    def clip(self, value: float) -> float:
        """The value of the space that is nearest in the transformed space.

        Raises:
            ValueError: `value` is not finite.
        """
        ...

    def check(self, value: float) -> None:
        """Accept a value of the space.

        Raises:
            ValueError: `value` is not in the space.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """A closed range of real numbers; `low == high` is allowed and fixes the value."""

    low: float
    high: float
    scale: Scale = Scale.LINEAR

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"a range goes from a finite low to a finite high, got {self.low}..{self.high}")
        if self.scale is Scale.LOG and self.low <= 0:
            raise ValueError(f"a log range lies above 0, got {self.low}..{self.high}; use Scale.LINEAR to reach 0")
        if self.scale is Scale.LOGIT and not (self.low > 0 and self.high < 1):
            raise ValueError(f"a logit range lies inside (0, 1), got {self.low}..{self.high}")

    def sample(self, rng: np.random.Generator) -> float:
        """A value drawn uniformly in the transformed space."""
        return self.at(float(rng.random()))

    def perturb(self, value: float, rng: np.random.Generator, step: float) -> float:
        """A normal step in the transformed space, reflected at the bounds; see `Space.perturb`."""
        self.check(value)
        _check_step(step)
        return self.at(reflect(self.share(value) + step * float(rng.standard_normal())))

    def clip(self, value: float) -> float:
        """The nearest value of the range; see `Space.clip`."""
        _check_finite(value)
        return min(max(value, self.low), self.high)

    def check(self, value: float) -> None:
        """Accept a value of the range; see `Space.check`."""
        if not self.low <= value <= self.high:
            raise ValueError(f"{value} is not in the range {self.low}..{self.high}; `clip` gives the nearest value")

    def share(self, value: float) -> float:
        """Where a value stands in the transformed range, 0 at `low` and 1 at `high`."""
        low, high = transform(self.low, self.scale), transform(self.high, self.scale)
        return 0.0 if low == high else (transform(value, self.scale) - low) / (high - low)

    def at(self, share: float) -> float:
        """The value at this share of the transformed range; the inverse of `share`."""
        low, high = transform(self.low, self.scale), transform(self.high, self.scale)
        # Transforming there and back rounds, which may leave the range by one unit in the last place.
        return self.clip(restore(low + share * (high - low), self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Int:
    """The whole numbers from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"a range of whole numbers goes from low to high, got {self.low}..{self.high}")

    def sample(self, rng: np.random.Generator) -> float:
        """A number drawn uniformly."""
        return float(rng.integers(self.low, self.high, endpoint=True))

    def perturb(self, value: float, rng: np.random.Generator, step: float) -> float:
        """A normal step, reflected at the outer edges of the first and last number's cells; see `Space.perturb`."""
        self.check(value)
        _check_step(step)
        num = self.high - self.low + 1
        # Every number owns a cell of width 1. Reflection maps cells onto cells, which keeps the move symmetric.
        share = reflect((value - self.low + 0.5) / num + step * float(rng.standard_normal()))
        return float(self.low + min(int(share * num), num - 1))

    def clip(self, value: float) -> float:
        """The nearest number of the range; see `Space.clip`."""
        _check_finite(value)
        return float(min(max(round(value), self.low), self.high))

    def check(self, value: float) -> None:
        """Accept a whole number of the range; see `Space.check`."""
        if not (self.low <= value <= self.high and value == int(value)):
            raise ValueError(f"{value} is not a whole number in {self.low}..{self.high}; `clip` gives the nearest one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical:
    """A set of numbers without order."""

    choices: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.choices or len(set(self.choices)) != len(self.choices) or not all(map(math.isfinite, self.choices)):
            raise ValueError(f"choices are one or more distinct finite numbers, got {self.choices}")

    def sample(self, rng: np.random.Generator) -> float:
        """A choice drawn uniformly."""
        return self.choices[int(rng.integers(len(self.choices)))]

    def perturb(self, value: float, rng: np.random.Generator, step: float) -> float:
        """Another choice with probability min(step, 1), each as likely; see `Space.perturb`."""
        self.check(value)
        _check_step(step)
        others = [choice for choice in self.choices if choice != value]
        if not others or rng.random() >= step:
            return value
        return others[int(rng.integers(len(others)))]

    def clip(self, value: float) -> float:
        """The nearest choice, the smaller of two at the same distance; see `Space.clip`."""
        _check_finite(value)
        return min(self.choices, key=lambda choice: (abs(choice - value), choice))

    def check(self, value: float) -> None:
        """Accept one of the choices; see `Space.check`."""
        if value not in self.choices:
            raise ValueError(f"{value} is none of the choices {', '.join(map(str, self.choices))}")


def transform(value: float, scale: Scale) -> float:
    """A value in the coordinates of its scale."""
    if scale is Scale.LOG:
        return math.log(value)
    return math.log(value / (1 - value)) if scale is Scale.LOGIT else value


def restore(value: float, scale: Scale) -> float:
    """The inverse of `transform`."""
    if scale is Scale.LOG:
        return math.exp(value)
    return 1 / (1 + math.exp(-value)) if scale is Scale.LOGIT else value


def reflect(share: float) -> float:
    """`share` folded into [0, 1], as light between two mirrors; any number of reflections."""
    folded = share % 2.0
    return 2.0 - folded if folded > 1.0 else folded


def _check_step(step: float) -> None:
    if not (math.isfinite(step) and step >= 0):
        raise ValueError(f"step is a share of the range, 0 or more, got {step}")


def _check_finite(value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"only a finite number can be clipped, got {value}")
