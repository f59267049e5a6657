"""Named fields, nested as deep as wanted, some of them there only when another one has a certain value.

    optimizer: Choice(sgd, adam)
    momentum:  When(field="optimizer", is_in=("sgd",), domain=Real(0, 0.99))

A value is a mapping with the fields that are there. Invariants: a field is there exactly when its condition holds; each field
draws from a stream of its own, named by its path, so that a field that is added or taken away moves no other field's draws.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from coharness.spaces.domain import Domain, Move, Value, check_blend


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A field that is there only while a field before it, on the same level, has one of some values."""

    field: str
    is_in: tuple[Value, ...]
    domain: Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Fields by name, each a domain, a tree of its own, or a `When`; see `coharness.spaces.domain.Domain`."""

    fields: Mapping[str, "Domain | When"]

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("a tree has at least one field, got none")
        known: set[str] = set()
        for name, entry in self.fields.items():
            if isinstance(entry, When):
                if entry.field not in known:
                    raise ValueError(
                        f"{name} is there when {entry.field!r} has a value, but no field of that name stands before it; "
                        f"known there: {', '.join(sorted(known)) or 'none'}"
                    )
                self._check_condition(name, entry)
            known.add(name)

    def _check_condition(self, name: str, entry: When) -> None:
        asked = _domain(self.fields[entry.field])
        for value in entry.is_in:
            try:
                asked.check(value)
            except ValueError as error:
                raise ValueError(
                    f"{name} is there when {entry.field} is {value!r}, which it never is: {error}"
                ) from error

    @property
    def num_features(self) -> int:
        """Coordinates of all fields, those that are not there included."""
        return sum(_domain(entry).num_features for entry in self.fields.values())

    def sample(self, rng: np.random.Generator) -> dict[str, Value]:
        """All fields drawn from their priors."""
        key = _key(rng)
        found: dict[str, Value] = {}
        for name, entry in self.fields.items():
            if self._is_there(entry, found):
                found[name] = _domain(entry).sample(_stream(key, name))
        return found

    def perturb(self, value: Value, rng: np.random.Generator, move: Move) -> dict[str, Value]:
        """Every field moved, or with probability `move.resample` drawn anew; a field whose condition begins to hold is drawn."""
        self.check(value)
        key = _key(rng)
        found: dict[str, Value] = {}
        for name, entry in self.fields.items():
            if not self._is_there(entry, found):
                continue
            stream, domain = _stream(key, name), _domain(entry)
            if isinstance(domain, Tree) and name in value:
                found[name] = domain.perturb(value[name], stream, move)
            # The draw comes first, so that the stream is the same whether the field was there before or not.
            elif stream.random() < move.resample or name not in value:
                found[name] = domain.sample(stream)
            else:
                found[name] = domain.perturb(value[name], stream, move)
        return found

    def clip(self, value: Value) -> dict[str, Value]:
        """Every field clipped; fields that should not be there are left out, one that is missing is an error."""
        _check_mapping(value)
        found: dict[str, Value] = {}
        for name, entry in self.fields.items():
            if not self._is_there(entry, found):
                continue
            if name not in value:
                raise ValueError(f"the field {name} is missing; got {', '.join(map(str, value)) or 'no field'}")
            with _named(name):
                found[name] = _domain(entry).clip(value[name])
        return found

    def check(self, value: Value) -> None:
        """Accept a mapping with exactly the fields whose conditions hold; see `Domain.check`."""
        _check_mapping(value)
        expected = [name for name, entry in self.fields.items() if self._is_there(entry, value)]
        missing = [name for name in expected if name not in value]
        extra = [str(name) for name in value if name not in expected]
        if missing or extra:
            told = [f"{', '.join(missing)} missing"] * bool(missing) + [f"{', '.join(extra)} not expected"] * bool(
                extra
            )
            raise ValueError(f"fields do not fit: {'; '.join(told)}; expected {', '.join(expected)}")
        for name in expected:
            with _named(name):
                _domain(self.fields[name]).check(value[name])

    def blend(self, values: Sequence[Value], weights: Sequence[float]) -> dict[str, Value]:
        """Every field blended over the parents that have it; see `Domain.blend`."""
        check_blend(values, weights)
        for value in values:
            self.check(value)
        found: dict[str, Value] = {}
        for name, entry in self.fields.items():
            if not self._is_there(entry, found):
                continue
            having = [(v[name], w) for v, w in zip(values, weights, strict=True) if name in v and w > 0]
            # A mean of numbers or ranks may meet a condition that no parent met; then the field starts in the middle.
            domain = _domain(entry)
            if having:
                found[name] = domain.blend([v for v, _ in having], [w for _, w in having])
            else:
                found[name] = domain.at([0.5] * domain.num_features)
        return found

    def features(self, value: Value) -> tuple[float, ...]:
        """Coordinates of all fields; the middle for one that is not there."""
        self.check(value)
        found: list[float] = []
        for name, entry in self.fields.items():
            domain = _domain(entry)
            found += domain.features(value[name]) if name in value else [0.5] * domain.num_features
        return tuple(found)

    def at(self, features: Sequence[float]) -> dict[str, Value]:
        """The value at these coordinates, with the first option of every choice."""
        return self.build(features, {})

    def with_features(self, value: Value, features: Sequence[float]) -> dict[str, Value]:
        """The value at these coordinates, with the choices of `value`."""
        self.check(value)
        return self.build(features, flat(value))

    def build(self, features: Sequence[float], choices: Mapping[str, Value], prefix: str = "") -> dict[str, Value]:
        """The value at these coordinates with these choices.

        Args:
            features: `num_features` coordinates in [0, 1].
            choices: dotted path -> option of unordered choices; the first option where one is left out.
            prefix: in front of this tree's own names in the paths.
        """
        if len(features) != self.num_features:
            raise ValueError(f"features: got {len(features)}, expected {self.num_features}")
        found: dict[str, Value] = {}
        place = 0
        for name, entry in self.fields.items():
            domain = _domain(entry)
            mine = features[place : place + domain.num_features]
            place += domain.num_features
            if not self._is_there(entry, found):
                continue
            path = prefix + name
            if isinstance(domain, Tree):
                found[name] = domain.build(mine, choices, f"{path}.")
            elif domain.num_features == 0 and path in choices:
                found[name] = domain.clip(choices[path])
            else:
                found[name] = domain.at(mine)
        return found

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Domain]]:
        """Dotted paths and domains of all fields that are no trees, in the order of their coordinates."""
        for name, entry in self.fields.items():
            domain = _domain(entry)
            if isinstance(domain, Tree):
                yield from domain.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name, domain

    def _is_there(self, entry: "Domain | When", value: Mapping[str, Value]) -> bool:
        if not isinstance(entry, When):
            return True
        return entry.field in value and any(
            value[entry.field] == asked and isinstance(value[entry.field], bool) == isinstance(asked, bool)
            for asked in entry.is_in
        )


def flat(value: Mapping[str, Value], prefix: str = "") -> dict[str, Value]:
    """A nested value as dotted paths to values that are no mappings."""
    found: dict[str, Value] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            found.update(flat(inner, f"{prefix}{name}."))
        else:
            found[prefix + name] = inner
    return found


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Put a field's name in front of an error from inside it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _domain(entry: "Domain | When") -> Domain:
    return entry.domain if isinstance(entry, When) else entry


def _check_mapping(value: Value) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"got {value!r}, expected a mapping of fields to values")


def _key(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def _stream(key: int, name: str) -> np.random.Generator:
    return np.random.default_rng([key, zlib.crc32(name.encode())])
