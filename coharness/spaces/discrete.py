"""Values that are no range of numbers: levels with an order, choices without one, and shares of a whole."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coharness.spaces.domain import Move, Value, check_blend, heaviest, is_number
from coharness.spaces.ranges import Whole
from coharness.spaces.space import reflect

_TOLERANCE = 1e-9
"""How far shares may be from a sum of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordinal:
    """Levels with an order, such as small, medium, large; a move goes along their ranks and never stays."""

    levels: tuple[Value, ...]

    def __post_init__(self) -> None:
        _check_distinct("levels", self.levels)

    @property
    def num_features(self) -> int:
        """One."""
        return 1

    def sample(self, rng: np.random.Generator) -> Value:
        """A level drawn uniformly."""
        return self.levels[self._ranks().sample(rng)]

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> Value:
        """A level some ranks away; see `Domain.perturb`."""
        return self.levels[self._ranks().perturb(self._rank(value), rng, move)]

    def clip(self, value: Value) -> Value:
        """The level itself, or of levels that are numbers the nearest one; see `Domain.clip`."""
        if is_number(value) and all(map(is_number, self.levels)):
            return min(self.levels, key=lambda level: (abs(level - value), level))
        return self.levels[self._rank(value)]

    def check(self, value: Value) -> None:
        """Accept a level; see `Domain.check`."""
        self._rank(value)

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> Value:
        """The level at the weighted mean of the ranks; see `Domain.blend`."""
        return self.levels[self._ranks().blend([self._rank(value) for value in values], weights)]

    def features(self, value: Value) -> tuple[float, ...]:
        """The middle of the rank's cell; see `Domain.features`."""
        return self._ranks().features(self._rank(value))

    def at(self, features: Sequence[float]) -> Value:
        """The level whose cell it is; see `Domain.at`."""
        return self.levels[self._ranks().at(features)]

    def _ranks(self) -> Whole:
        return Whole(low=0, high=len(self.levels) - 1)

    def _rank(self, value: Value) -> int:
        return _index(value, self.levels, "levels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Options without order; a single option fixes the value."""

    options: tuple[Value, ...]
    weights: tuple[float, ...] | None = None
    "Prior probabilities up to a factor; equal where left out."

    def __post_init__(self) -> None:
        _check_distinct("options", self.options)
        if self.weights is not None:
            check_blend(self.options, self.weights)

    @property
    def num_features(self) -> int:
        """None: the options have no order."""
        return 0

    def sample(self, rng: np.random.Generator) -> Value:
        """An option drawn from the prior."""
        if self.weights is None:
            return self.options[int(rng.integers(len(self.options)))]
        edges = np.cumsum(self.weights)
        return self.options[int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))]

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> Value:
        """Another option with probability `move.switch`, each as likely; see `Domain.perturb`."""
        index = _index(value, self.options, "options")
        if len(self.options) == 1 or rng.random() >= move.switch:
            return self.options[index]
        other = int(rng.integers(len(self.options) - 1))
        return self.options[other + (other >= index)]

    def clip(self, value: Value) -> Value:
        """The option itself; see `Domain.clip`."""
        return self.options[_index(value, self.options, "options")]

    def check(self, value: Value) -> None:
        """Accept an option; see `Domain.check`."""
        _index(value, self.options, "options")

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> Value:
        """The heaviest parent's option; see `Domain.blend`."""
        return self.clip(heaviest(values, weights))

    def features(self, value: Value) -> tuple[float, ...]:
        """No coordinate; see `Domain.features`."""
        self.check(value)
        return ()

    def at(self, features: Sequence[float]) -> Value:
        """Never called with coordinates, since there are none; the first option."""
        return self.options[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplex:
    """Shares of a whole, such as the weights of a mix: `parts` numbers of 0 or more that sum to 1, as a list.

    A whole is broken like a stick: each part takes a share of what is left, and that share, put through its own distribution
    function, is a coordinate in [0, 1]. With every coordinate uniform the shares are uniform on the simplex; so moves that are
    symmetric and reflected in the coordinates keep explore alone uniform on the simplex, its edges included.
    """

    parts: int

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise ValueError(f"a simplex has 2 parts or more, got {self.parts}; one part is always the whole")

    @property
    def num_features(self) -> int:
        """One less than the parts."""
        return self.parts - 1

    def sample(self, rng: np.random.Generator) -> list[float]:
        """Shares drawn uniformly."""
        return self.at([float(u) for u in rng.random(self.parts - 1)])

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> list[float]:
        """A step of every coordinate, reflected at its bounds; see `Domain.perturb`."""
        if move.step == 0:
            self.check(value)
            return [float(share) for share in value]
        return self.at([reflect(u + move.draw(rng)) for u in self.features(value)])

    def clip(self, value: Value) -> list[float]:
        """The shares in proportion, negative ones taken as 0; see `Domain.clip`."""
        if not (isinstance(value, list | tuple) and len(value) == self.parts and all(map(is_number, value))):
            raise ValueError(f"only {self.parts} finite numbers can be clipped to shares, got {value!r}")
        kept = [max(float(share), 0.0) for share in value]
        total = math.fsum(kept)
        return [share / total for share in kept] if total > 0 else [1.0 / self.parts] * self.parts

    def check(self, value: Value) -> None:
        """Accept shares that sum to 1; see `Domain.check`."""
        if not (
            isinstance(value, list | tuple)
            and len(value) == self.parts
            and all(is_number(share) and share >= 0 for share in value)
            and abs(math.fsum(value) - 1) <= _TOLERANCE
        ):
            raise ValueError(f"{value!r} is not {self.parts} shares of 0 or more that sum to 1; `clip` scales them")

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> list[float]:
        """The weighted mean of each part; see `Domain.blend`."""
        check_blend(values, weights)
        for value in values:
            self.check(value)
        total = math.fsum(weights)
        return self.clip(
            [math.fsum(w * v[i] for w, v in zip(weights, values, strict=True)) / total for i in range(self.parts)]
        )

    def features(self, value: Value) -> tuple[float, ...]:
        """Coordinates of the broken stick; see the class. Where nothing is left, the middle."""
        self.check(value)
        coordinates, left = [], 1.0
        for place, share in enumerate(value[:-1]):
            # The first of m + 1 uniform shares of what is left is Beta(1, m), with distribution function 1 - (1 - v)^m.
            m = self.parts - 1 - place
            taken = 0.0 if left <= 0 else min(share / left, 1.0)
            coordinates.append(0.5 if left <= 0 else -math.expm1(m * math.log1p(-taken)) if taken < 1 else 1.0)
            left -= share
        return tuple(coordinates)

    def at(self, features: Sequence[float]) -> list[float]:
        """The shares at these coordinates; see `Domain.at`."""
        shares, left = [], 1.0
        for place, u in enumerate(features):
            m = self.parts - 1 - place
            taken = -math.expm1(math.log1p(-u) / m) if u < 1 else 1.0
            shares.append(left * taken)
            left *= 1 - taken
        return [*shares, left]


def _check_distinct(name: str, values: Sequence[Value]) -> None:
    # 1 and True are equal to Python and different to a user; their spelling tells them apart.
    if not values or len({repr(value) for value in values}) != len(values):
        raise ValueError(f"{name} are one or more distinct values, got {values!r}")
    if any(isinstance(value, Mapping) for value in values):
        raise ValueError(
            f"{name} are no mappings, got {values!r}; name them, and put what they hold into conditional fields"
        )


def _index(value: Value, values: Sequence[Value], name: str) -> int:
    for index, known in enumerate(values):
        if known == value and isinstance(known, bool) == isinstance(value, bool):
            return index
    raise ValueError(f"{value!r} is none of the {name} {', '.join(map(repr, values))}")
