"""What crosses the border of a sandbox: plain values alone, in an encoding that no hostile text can use against its reader."""

import collections
import enum
import json
import math
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.reward.sandbox.guest import plain

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4), max_leaves=6)
PLAIN = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal, of equal types all the way down, and zeros of equal sign."""
    return repr(a) == repr(b) if isinstance(a, float | complex) else type(a) is type(b) and bool(a == b)


@given(PLAIN)
def test_every_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert same(plain.loads(plain.dumps(value)), value)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, 2**63, -(2**63), pytest.param(10**5_000, id="large"), "\ud800", "\x00"]
)
def test_values_at_the_edges_come_back(value: Any) -> None:
    assert same(plain.loads(plain.dumps(value)), value)


def test_not_a_number_comes_back_as_one() -> None:
    assert math.isnan(plain.loads(plain.dumps(math.nan)))


def test_dicts_of_the_collections_module_become_dicts() -> None:
    default = collections.defaultdict(list, {1: [2]})
    assert plain.decode(plain.encode(collections.Counter("aab"))) == {"a": 2, "b": 1}
    assert type(plain.decode(plain.encode(default))) is dict


class Always(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [Always(3), Colour.RED, Fraction(1, 2), object(), print, int, range(3), iter([1]), [Always(3)], {1: Always(1)}],
)
def test_whatever_brings_behaviour_along_is_not_plain(value: Any) -> None:
    with pytest.raises(plain.NotPlain):
        plain.encode(value)


def test_size_and_depth_are_bounded_on_both_sides() -> None:
    deep: Any = []
    for _ in range(plain.MAX_DEPTH + 2):
        deep = [deep]
    for value in (deep, [0] * (plain.MAX_VALUES + 1)):
        with pytest.raises(plain.NotPlain):
            plain.encode(value)
        with pytest.raises(plain.NotPlain):
            plain.decode(value)


def colliding(count: int) -> list[int]:
    return [k * (2**61 - 1) for k in range(count)]


def test_keys_that_collide_are_refused_before_they_meet() -> None:
    keys = colliding(20_000)
    assert len(set(map(hash, keys[:64]))) == 1
    for text in (
        json.dumps({"t": "dict", "v": [[plain.encode(key), 0] for key in keys]}),
        json.dumps({"t": "set", "v": [plain.encode(key) for key in keys]}),
        json.dumps({"t": "set", "v": [{"t": "tuple", "v": [plain.encode(key)]} for key in keys]}),
        json.dumps({"t": "set", "v": [{"t": "float", "v": "inf"}] * 100}),
    ):
        began = time.process_time()
        with pytest.raises(plain.NotPlain, match="share one hash"):
            plain.loads(text)
        # Building the set takes this machine most of a minute; a bound that wide is no timing test.
        assert time.process_time() - began < 10.0


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[" * 100_000, "nan nan", '{"t":"int"}', '{"t":"int","v":"zz"}', '{"t":"int","v":"0x1","x":1}',
        '{"t":"float","v":"1e5"}', '{"t":"dict","v":[[1]]}', '{"t":"dict","v":[[[1],2]]}', '{"t":"set","v":[[1]]}',
        '{"t":"bytes","v":"zz"}', '{"t":"complex","v":["1"]}', '{"t":"os.system","v":"true"}', '{"a":1}', "9" * 5_000,
        '{"t":"set","v":[{"t":"set","v":[]}]}',
    ],
)  # fmt: skip
def test_hostile_text_is_refused_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(plain.NotPlain):
        plain.loads(text)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda i: st.lists(i) | st.dictionaries(st.sampled_from("tvx"), i)
    )
)
def test_any_json_is_decoded_or_refused(data: Any) -> None:
    try:
        value = plain.decode(data)
    except plain.NotPlain:
        return
    plain.encode(value)
