"""The expression reader: it agrees with Python where it answers, and answers nothing that could hurt."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.reward.sandbox import Call, Layer, Limits, Program, Status
from coharness.reward.sandbox.ladder import LiteralLayer
from coharness.reward.sandbox.literal import MAX_BITS, NotLiteral, evaluate

NUMBERS = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=10) | st.binary(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_literals_mean_what_they_mean_in_python(value: Any) -> None:
    assert evaluate(repr(value)) == ast.literal_eval(repr(value))


@given(
    st.lists(st.tuples(st.sampled_from(["+", "-", "*", "//", "%"]), st.integers(-99, 99)), max_size=6),
    st.integers(-99, 99),
)
def test_arithmetic_means_what_it_means_in_python(steps: list[tuple[str, int]], first: int) -> None:
    text = f"({first})" + "".join(f" {operator} ({number})" for operator, number in steps)
    try:
        expected = eval(text)
    except ZeroDivisionError:
        with pytest.raises(NotLiteral, match="ZeroDivisionError"):
            evaluate(text)
    else:
        assert evaluate(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'ab' * 3", "ababab"),
        ("[0] * 2 + [1]", [0, 0, 1]),
        ("2 ** 10", 1024),
        ("not 0", True),
        ("float('inf')", float("inf")),
    ],
)
def test_what_tests_of_code_write_is_read(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "x", "f(1)", "__import__('os')", "().__class__", "[i for i in (1,)]", "lambda: 0", "f'{1}'", "(y := 1)", "1 if 1 else 2",
        "9 ** 9 ** 9", "'a' * 10 ** 9", "[[0] * 99999] * 99999 * 99999", "2 ** 5000", f"1 << {MAX_BITS}", "'%999999999d' % 1",
        "open('/etc/passwd')", "int('9' * 9999)", "1 / 0", "{[]: 1}", "", "1 2", "(" * 1000, "-" * 30_000 + "1", "'\\ud800" * 9,
        "...", "{**{}}", "range(3)",
    ],
)  # fmt: skip
def test_everything_else_is_left_to_another_layer(text: str) -> None:
    with pytest.raises(NotLiteral):
        evaluate(text)


def test_the_layer_answers_expressions_and_passes_functions_on() -> None:
    layer = LiteralLayer()
    answered = layer.run(Program(code=" (1, 2) "), Limits())
    assert (answered.status, answered.layer) == (Status.OK, Layer.LITERAL)
    assert layer.run(Program(code="x"), Limits()).status is Status.UNSUPPORTED
    called = layer.run(Program(code="def f(): return 1", entry="f", calls=(Call(),)), Limits())
    assert called.status is Status.UNSUPPORTED
