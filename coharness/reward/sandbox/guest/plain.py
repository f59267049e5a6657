"""Plain values and their encoding as JSON: what may cross the border of a sandbox, in both directions.

Plain are None, bool, int, float, complex, str, bytes, and lists, tuples, sets, frozensets and dicts of plain values, by exact
type: an instance of a subclass is not plain, so that no value brings behaviour (`__eq__`, `__hash__`) along. The exceptions
are the dict-like types of `collections`, which become dicts.

What JSON has is itself; all else is `{"t": type, "v": ...}`. Decoding is bounded: by depth, by the number of values, and by
how many members of a set or dict share a hash. Such numbers can be chosen, and 20,000 of them hold an interpreter up for a
minute in one call that nothing can interrupt.
"""

import collections
import json
import math
from typing import Any

MAX_DEPTH = 64
MAX_VALUES = 200_000
MAX_SAME_HASH = 16
_JSON_INT = 2**63


class NotPlain(ValueError):
    """The value, or something in it, is not plain or too large."""


def dumps(value: Any) -> str:
    """`value` as one line of JSON.

    Raises:
        NotPlain: it is not plain, or too large.
    """
    return json.dumps(encode(value), separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """The value of a line that `dumps` made; the text may be hostile.

    Raises:
        NotPlain: it is no such line, or too large.
    """
    try:
        return decode(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise NotPlain(str(error)[:200]) from error


def encode(value: Any) -> Any:
    """`value` as what `json.dumps` takes."""
    return _encode(value, MAX_DEPTH, [MAX_VALUES])


def _encode(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth < 0 or left[0] < 0:
        raise NotPlain(f"a plain value has at most {MAX_VALUES} parts, {MAX_DEPTH} deep")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_JSON_INT <= value < _JSON_INT else {"t": "int", "v": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"t": "float", "v": repr(value)}
    if kind is list:
        return [_encode(item, depth - 1, left) for item in value]
    if kind is tuple or kind is set or kind is frozenset:
        return {"t": kind.__name__, "v": [_encode(item, depth - 1, left) for item in value]}
    if kind in (dict, collections.Counter, collections.defaultdict, collections.OrderedDict):
        pairs = [[_encode(key, depth - 1, left), _encode(item, depth - 1, left)] for key, item in value.items()]
        return {"t": "dict", "v": pairs}
    if kind is bytes:
        return {"t": "bytes", "v": value.hex()}
    if kind is complex:
        return {"t": "complex", "v": [repr(value.real), repr(value.imag)]}
    raise NotPlain(f"a value of type {kind.__name__!r:.80} is not plain")


def decode(data: Any) -> Any:
    """The value of what `encode` gave."""
    return _decode(data, MAX_DEPTH, [MAX_VALUES])


def _decode(data: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth < 0 or left[0] < 0:
        raise NotPlain(f"a plain value has at most {MAX_VALUES} parts, {MAX_DEPTH} deep")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [_decode(item, depth - 1, left) for item in data]
    match data:
        case {"t": "int", "v": str(text)} if len(data) == 2:
            return int(text, 16)
        case {"t": "float", "v": "nan" | "inf" | "-inf" as text} if len(data) == 2:
            return float(text)
        case {"t": "bytes", "v": str(text)} if len(data) == 2:
            return bytes.fromhex(text)
        case {"t": "complex", "v": [str(real), str(imag)]} if len(data) == 2:
            return complex(float(real), float(imag))
        case {"t": "tuple", "v": list(items)} if len(data) == 2:
            return tuple(_decode(item, depth - 1, left) for item in items)
        case {"t": "set" | "frozenset" as kind, "v": list(items)} if len(data) == 2:
            members = [_decode(item, depth - 1, left) for item in items]
            _check_hashes(members)
            return set(members) if kind == "set" else frozenset(members)
        case {"t": "dict", "v": list(items)} if len(data) == 2:
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in items):
                raise NotPlain("a dict is a list of pairs")
            keys = [_decode(key, depth - 1, left) for key, _ in items]
            _check_hashes(keys)
            return {key: _decode(item, depth - 1, left) for key, (_, item) in zip(keys, items, strict=True)}
    raise NotPlain("no encoding of a plain value")


def _check_hashes(members: list[Any]) -> None:
    try:
        hashes = [hash(member) for member in members]
    except TypeError as error:
        raise NotPlain("a set or a key holds something that cannot be hashed") from error
    # Hashes as integers hash to themselves, so that counting them is safe where the members would not be.
    most = max(collections.Counter(hashes).values(), default=0)
    if most > MAX_SAME_HASH:
        raise NotPlain(f"{most} members of a set or dict share one hash")
