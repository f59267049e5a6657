"""Pieces that easy functions are put together from: what a piece says, how it is written, and what it does.

Each piece is given twice, as Python's text and as a function of ours, and neither is made from the other: the text becomes the
reference, the function says what the hidden test expects. So a slip in either one fails the reference on its own test.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A step with one constant, `{a}`, from a number, `{x}`."""

    name: str
    "In the name of a function, before the constant."
    says: str
    code: str
    "An expression or a condition."
    does: Callable[[int, int], int]
    "(x, a) -> value; a condition gives 0 or 1."
    high: int = 999
    "Largest constant; 2 is the least."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What becomes of a list of numbers, `{xs}`."""

    name: str
    says: str
    code: str
    does: Callable[[list[int]], int | list[int]]


NUMBERS: tuple[Piece, ...] = (
    Piece(name="plus", says="plus {a}", code="{x} + {a}", does=lambda x, a: x + a),
    Piece(name="minus", says="minus {a}", code="{x} - {a}", does=lambda x, a: x - a),
    Piece(name="times", says="times {a}", code="{x} * {a}", does=lambda x, a: x * a),
    Piece(
        name="over",
        says="divided by {a} and rounded down",
        code="{x} // {a}",
        does=lambda x, a: math.floor(Fraction(x, a)),
    ),
    Piece(name="mod", says="modulo {a}", code="{x} % {a}", does=lambda x, a: x - a * math.floor(Fraction(x, a))),
    Piece(name="at_least", says="but at least {a}", code="max({x}, {a})", does=lambda x, a: x if x > a else a),
    Piece(name="at_most", says="but at most {a}", code="min({x}, {a})", does=lambda x, a: x if x < a else a),
)
"""Steps from number to number."""

CONDITIONS: tuple[Piece, ...] = (
    Piece(name="above", says="greater than {a}", code="{x} > {a}", does=lambda x, a: x - a >= 1, high=120),
    Piece(name="below", says="less than {a}", code="{x} < {a}", does=lambda x, a: a - x >= 1, high=120),
    Piece(
        name="multiples_of",
        says="divisible by {a}",
        code="{x} % {a} == 0",
        does=lambda x, a: Fraction(x, a).denominator == 1,
        high=9,
    ),
    Piece(
        name="no_multiples_of",
        says="not divisible by {a}",
        code="{x} % {a} != 0",
        does=lambda x, a: Fraction(x, a).denominator > 1,
        high=9,
    ),
    Piece(name="not", says="different from {a}", code="{x} != {a}", does=lambda x, a: bool(x - a), high=120),
)
"""What a number may be."""


def _total(xs: list[int]) -> int:
    total = 0
    for x in xs:
        total += x
    return total


def _in_order(xs: list[int]) -> list[int]:
    done: list[int] = []
    for x in xs:
        place = next((i for i, y in enumerate(done) if y > x), len(done))
        done.insert(place, x)
    return done


FOLDS: tuple[Fold, ...] = (
    Fold(name="sum", says="the sum of", code="sum({xs})", does=_total),
    Fold(name="count", says="the number of", code="len({xs})", does=lambda xs: _total([1 for _ in xs])),
    Fold(name="list", says="a list of", code="{xs}", does=list),
    Fold(name="sorted", says="a sorted list of", code="sorted({xs})", does=_in_order),
    Fold(name="reversed", says="a reversed list of", code="{xs}[::-1]", does=lambda xs: list(reversed(xs))),
    Fold(
        name="largest",
        says="the largest, or 0 if there is none, of",
        code="max({xs}, default=0)",
        does=lambda xs: (_in_order(xs) or [0])[-1],
    ),
)
"""From a list to what is asked for."""
