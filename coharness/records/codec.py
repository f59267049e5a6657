"""Records to JSON values and back, by their type hints.

A record becomes a list of its fields in order (compact: a run writes a hundred thousand work items); a member of a union
carries its class name in front. Encoders and decoders are built once a type. Invariant: `decode(T, encode(T, x)) == x`.
Whoever adds, removes or reorders a field of a journaled record raises `coharness.loop.journal.JOURNAL_SCHEMA`.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Convert = Callable[[Any], Any]


def encode(kind: Any, value: Any) -> Any:
    """`value`, an instance of the type `kind`, as JSON values."""
    return _encoder(kind)(value)


def decode(kind: type[T] | Any, data: Any) -> T:
    """The inverse of `encode`.

    Raises:
        ValueError: `data` does not have the shape of `kind`; the message names the record.
    """
    key: Any = kind
    result: T = _decoder(key)(data)
    return result


def _same(value: Any) -> Any:
    return value


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _unwrap(kind: Any) -> Any:
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return kind


def _split_optional(kind: Any) -> tuple[tuple[Any, ...], bool]:
    members = get_args(kind)
    return tuple(m for m in members if m is not types.NoneType), types.NoneType in members


@cache
def _encoder(kind: Any) -> _Convert:
    kind = _unwrap(kind)
    if dataclasses.is_dataclass(kind):
        return _record_encoder(cast(type, kind))
    if _is_union(kind):
        members, _ = _split_optional(kind)
        if len(members) == 1:
            inner = _encoder(members[0])
            return _same if inner is _same else lambda v: None if v is None else inner(v)
        by_class = {m: (m.__name__, _encoder(m)) for m in members}

        def encode_union(value: Any) -> Any:
            if value is None:
                return None
            name, convert = by_class[type(value)]
            return [name, convert(value)]

        return encode_union
    origin = get_origin(kind)
    if origin in (tuple, list):
        inner = _encoder(get_args(kind)[0])
        if origin is tuple and len(get_args(kind)) == 2 and get_args(kind)[1] is not Ellipsis:
            parts = tuple(_encoder(a) for a in get_args(kind))
            return lambda v: [convert(x) for convert, x in zip(parts, v, strict=True)]
        return list if inner is _same else lambda v: [inner(x) for x in v]
    if origin is not None and issubclass(origin, Mapping):
        key, inner = (_encoder(a) for a in get_args(kind))
        key_kind = _unwrap(get_args(kind)[0])
        if dataclasses.is_dataclass(key_kind):
            return lambda v: [[key(k), inner(x)] for k, x in v.items()]
        return dict if inner is _same else lambda v: {k: inner(x) for k, x in v.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda v: v.value
    return _same


def _record_encoder(kind: type) -> _Convert:
    hints = get_type_hints(kind)
    fields = [(f.name, _encoder(hints[f.name])) for f in dataclasses.fields(kind)]
    plain = {name for name, convert in fields if convert is _same}
    body = ", ".join(f"v.{name}" if name in plain else f"e_{name}(v.{name})" for name, _ in fields)
    namespace = {f"e_{name}": convert for name, convert in fields}
    # A generated function is about four times as fast as a loop over fields, and journaling is the core's main cost.
    return cast(_Convert, eval(f"lambda v: [{body}]", namespace))


@cache
def _decoder(kind: Any) -> _Convert:
    kind = _unwrap(kind)
    if dataclasses.is_dataclass(kind):
        return _record_decoder(cast(type, kind))
    if _is_union(kind):
        members, _ = _split_optional(kind)
        if len(members) == 1:
            inner = _decoder(members[0])
            return _same if inner is _same else lambda v: None if v is None else inner(v)
        by_name = {m.__name__: _decoder(m) for m in members}

        def decode_union(data: Any) -> Any:
            if data is None:
                return None
            name, body = data
            if name not in by_name:
                raise ValueError(f"unknown record {name!r}; expected one of {', '.join(sorted(by_name))}")
            return by_name[name](body)

        return decode_union
    origin = get_origin(kind)
    if origin is tuple:
        args = get_args(kind)
        if len(args) == 2 and args[1] is not Ellipsis:
            parts = tuple(_decoder(a) for a in args)
            return lambda v: tuple(convert(x) for convert, x in zip(parts, v, strict=True))
        inner = _decoder(args[0])
        return tuple if inner is _same else lambda v: tuple(inner(x) for x in v)
    if origin is list:
        inner = _decoder(get_args(kind)[0])
        return list if inner is _same else lambda v: [inner(x) for x in v]
    if origin is not None and issubclass(origin, Mapping):
        key, inner = (_decoder(a) for a in get_args(kind))
        if dataclasses.is_dataclass(_unwrap(get_args(kind)[0])):
            return lambda v: {key(k): inner(x) for k, x in v}
        return dict if inner is _same else lambda v: {k: inner(x) for k, x in v.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {member.value: member for member in kind}.__getitem__
    return _same


def _record_decoder(kind: type) -> _Convert:
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    names = [f.name for f in fields]
    converters = [_decoder(hints[name]) for name in names]

    def decode_record(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(names):
            got = f"{len(data)} values" if isinstance(data, list) else type(data).__name__
            raise ValueError(f"{kind.__name__} has the {len(names)} fields {', '.join(names)}, got {got}")
        return kind(**{name: convert(x) for name, convert, x in zip(names, converters, data, strict=True)})

    return decode_record
