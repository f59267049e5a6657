"""Ranges of numbers: real (linear, log, logit) and whole (linear, log), with an optional normal prior.

Moves are symmetric in the transformed space and reflected at the bounds. A whole number that moves is rounded up or down by
chance, in proportion, and where it would stay it goes one further in the same direction: 2 can leave 2, and a step that is small
against 1 is still a step. Price of the forced move: under explore alone the two ends of a whole range carry half the weight of an
inner number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from coharness.spaces.domain import Move, Value, check_blend, is_number
from coharness.spaces.space import Scale, reflect, restore, transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A normal prior in the transformed space, cut off at the range's bounds."""

    center: float
    "In the values' own unit."
    spread: float
    "Standard deviation, in units of `coharness.spaces.domain`."

    def __post_init__(self) -> None:
        if not (math.isfinite(self.center) and math.isfinite(self.spread) and self.spread > 0):
            raise ValueError(
                f"Prior: got center {self.center}, spread {self.spread}, expected a finite center and a spread above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A closed range of real numbers; `low == high` fixes the value."""

    low: float
    high: float
    scale: Scale = Scale.LINEAR
    prior: Prior | None = None
    "Uniform in the transformed space where left out."

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.scale)
        _check_prior(self.prior, self.low, self.high)

    @property
    def num_features(self) -> int:
        """One."""
        return 1

    def sample(self, rng: np.random.Generator) -> float:
        """A value drawn from the prior."""
        return self._at_share(_draw_share(self.low, self.high, self.scale, self.prior, rng))

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> float:
        """A step in the transformed space, reflected at the bounds; see `Domain.perturb`."""
        self.check(value)
        distance = move.draw(rng) * _unit_share(self.low, self.high, self.scale)
        return self._at_share(reflect(_share(value, self.low, self.high, self.scale) + distance))

    def clip(self, value: Value) -> float:
        """The nearest value of the range; see `Domain.clip`."""
        _check_number(value)
        return float(min(max(value, self.low), self.high))

    def check(self, value: Value) -> None:
        """Accept a number of the range; see `Domain.check`."""
        if not (is_number(value) and self.low <= value <= self.high):
            raise ValueError(f"{value!r} is not a number in {self.low}..{self.high}; `clip` gives the nearest one")

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> float:
        """The weighted mean in the transformed space; see `Domain.blend`."""
        return self._at_share(_mean_share(values, weights, self.low, self.high, self.scale))

    def features(self, value: Value) -> tuple[float, ...]:
        """Where the value stands in the transformed range; see `Domain.features`."""
        self.check(value)
        return (_share(value, self.low, self.high, self.scale),)

    def at(self, features: Sequence[float]) -> float:
        """The value there; see `Domain.at`."""
        (share,) = features
        return self._at_share(share)

    def _at_share(self, share: float) -> float:
        return self.clip(_at(share, self.low, self.high, self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The whole numbers from `low` to `high`, both included; a log scale makes steps factors (batch sizes)."""

    low: int
    high: int
    scale: Scale = Scale.LINEAR
    prior: Prior | None = None
    "Uniform over the numbers (linear) or over their logarithms where left out."

    def __post_init__(self) -> None:
        if self.scale is Scale.LOGIT:
            raise ValueError("a whole range is linear or log; logit is for shares between 0 and 1, use Real")
        _check_range(self.low, self.high, self.scale)
        _check_prior(self.prior, self.low, self.high)

    @property
    def num_features(self) -> int:
        """One."""
        return 1

    def sample(self, rng: np.random.Generator) -> int:
        """A number drawn from the prior."""
        # Cells of width 1 around the numbers: in a linear range every number is then as likely as the next.
        low, high = self._edges()
        return self._nearest(_at(_draw_share(low, high, self.scale, self.prior, rng), low, high, self.scale))

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> int:
        """A step in the transformed space, rounded by chance, never staying where it was; see `Domain.perturb`."""
        self.check(value)
        distance = move.draw(rng)
        if self.low == self.high or distance == 0:
            return int(value)
        share = _share(value, self.low, self.high, self.scale) + distance * _unit_share(self.low, self.high, self.scale)
        moved = _at(reflect(share), self.low, self.high, self.scale)
        down = math.floor(moved)
        found = min(max(down + (rng.random() < moved - down), self.low), self.high)
        if found == value:
            found = int(value) + (1 if distance > 0 else -1)
            if not self.low <= found <= self.high:
                found = 2 * int(value) - found
        return int(found)

    def clip(self, value: Value) -> int:
        """The nearest number of the range; see `Domain.clip`."""
        _check_number(value)
        return self._nearest(value)

    def check(self, value: Value) -> None:
        """Accept a whole number of the range; see `Domain.check`."""
        if not (is_number(value) and self.low <= value <= self.high and value == int(value)):
            raise ValueError(
                f"{value!r} is not a whole number in {self.low}..{self.high}; `clip` gives the nearest one"
            )

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> int:
        """The weighted mean in the transformed space, rounded; see `Domain.blend`."""
        return self._nearest(
            _at(_mean_share(values, weights, self.low, self.high, self.scale), self.low, self.high, self.scale)
        )

    def features(self, value: Value) -> tuple[float, ...]:
        """The middle of the number's cell in the transformed range; see `Domain.features`."""
        self.check(value)
        low, high = self._edges()
        return (_share(value, low, high, self.scale),)

    def at(self, features: Sequence[float]) -> int:
        """The number whose cell it is; see `Domain.at`."""
        (share,) = features
        low, high = self._edges()
        return self._nearest(_at(share, low, high, self.scale))

    def _edges(self) -> tuple[float, float]:
        return self.low - 0.5, self.high + 0.5

    def _nearest(self, value: float) -> int:
        return int(min(max(math.floor(value + 0.5), self.low), self.high))


# Shares of a range --------------------------------------------------------------------------------------------------


def _share(value: float, low: float, high: float, scale: Scale) -> float:
    """Where a value stands in the transformed range, 0 at `low` and 1 at `high`."""
    begin, end = transform(low, scale), transform(high, scale)
    return 0.0 if begin == end else (transform(value, scale) - begin) / (end - begin)


def _at(share: float, low: float, high: float, scale: Scale) -> float:
    begin, end = transform(low, scale), transform(high, scale)
    return restore(begin + share * (end - begin), scale)


def _unit_share(low: float, high: float, scale: Scale) -> float:
    """One unit as a share of the transformed range."""
    width = transform(high, scale) - transform(low, scale)
    return 1.0 if scale is Scale.LINEAR or width == 0 else 1.0 / width


def _draw_share(low: float, high: float, scale: Scale, prior: Prior | None, rng: np.random.Generator) -> float:
    uniform = float(rng.random())
    if prior is None or low == high:
        return uniform
    center = _share(prior.center, low, high, scale)
    spread = prior.spread * _unit_share(low, high, scale)
    below, above = special.ndtr(-center / spread), special.ndtr((1 - center) / spread)
    share = center + spread * float(special.ndtri(below + uniform * (above - below)))
    return min(max(share, 0.0), 1.0)


def _mean_share(values: Sequence[Value], weights: Sequence[float], low: float, high: float, scale: Scale) -> float:
    check_blend(values, weights)
    for value in values:
        if not (is_number(value) and low <= value <= high):
            raise ValueError(f"blend: {value!r} is not a number in {low}..{high}")
    shares = [_share(value, low, high, scale) for value in values]
    return math.fsum(w * s for w, s in zip(weights, shares, strict=True)) / math.fsum(weights)


def _check_range(low: float, high: float, scale: Scale) -> None:
    if not (is_number(low) and is_number(high) and low <= high):
        raise ValueError(f"a range goes from a finite low to a finite high, got {low}..{high}")
    if scale is Scale.LOG and low <= 0:
        raise ValueError(f"a log range lies above 0, got {low}..{high}; use Scale.LINEAR to reach 0")
    if scale is Scale.LOGIT and not (low > 0 and high < 1):
        raise ValueError(f"a logit range lies inside (0, 1), got {low}..{high}")


def _check_prior(prior: Prior | None, low: float, high: float) -> None:
    if prior is not None and not low <= prior.center <= high:
        raise ValueError(f"a prior's center lies in its range, got {prior.center} outside {low}..{high}")


def _check_number(value: Value) -> None:
    if not is_number(value):
        raise ValueError(f"only a finite number can be clipped, got {value!r}")
