"""The Monty layer: its values and ends, and what it leaves to CPython because it would run it otherwise."""

import math
from typing import Any

import pytest

from coharness.reward.sandbox import Call, Limits, Outcome, Program, Raised, Returned, Status
from coharness.reward.sandbox.ladder import LayerRunner
from coharness.reward.sandbox.monty_dialect import differs

LIMITS = Limits(timeout_s=1.0, memory_bytes=64 * 2**20)


def run(layer: LayerRunner, code: str, *arguments: Any, limits: Limits = LIMITS) -> Outcome:
    return layer.run(Program(code=code, entry="f", calls=(Call(args=arguments),)), limits)


def test_plain_values_of_every_kind_come_back(monty: LayerRunner) -> None:
    code = "def f(x):\n    return [x, (1, 2), {3}, frozenset([4]), {5: 'a', (6,): None}, b'\\xff', 1 + 2j, 2**70,"
    code += " -0.0, True, 'é\\n\"']"
    (result,) = run(monty, code, {"k": (1,)}).results
    assert result == Returned(
        value=[
            {"k": (1,)},
            (1, 2),
            {3},
            frozenset([4]),
            {5: "a", (6,): None},
            b"\xff",
            1 + 2j,
            2**70,
            -0.0,
            True,
            'é\n"',
        ]
    )
    (number,) = run(monty, "def f():\n    return [float('nan'), float('-inf')]").results
    assert isinstance(number, Returned)
    assert math.isnan(number.value[0])
    assert number.value[1] == -math.inf


def test_nothing_is_left_of_an_earlier_program(monty: LayerRunner) -> None:
    assert run(monty, "kept = 1\ndef f():\n    return kept").status is Status.OK
    assert run(monty, "def f():\n    return kept").status is Status.UNSUPPORTED


def test_a_call_that_raises_does_not_end_the_others(monty: LayerRunner) -> None:
    calls = tuple(Call(args=(x,)) for x in (1, 0, 2))
    outcome = monty.run(Program(code="def f(x):\n    return 2 // x", entry="f", calls=calls), LIMITS)
    first, second, third = outcome.results
    assert (first, third) == (Returned(value=2), Returned(value=1))
    assert isinstance(second, Raised)
    assert (outcome.status, outcome.error, second.error) == (Status.ERROR, "ZeroDivisionError", "ZeroDivisionError")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("def f():\n    while True:\n        pass", Status.TIMEOUT),
        ("import time\ndef f():\n    time.sleep(30)", Status.TIMEOUT),
        ("def f():\n    return 'x' * 10**9", Status.MEMORY),
        ("def f():\n    while True:\n        print('x' * 65536)", Status.OUTPUT_LIMIT),
        ("def f():\n    return open('/etc/passwd').read()", Status.POLICY),
        ("class A:\n    pass\ndef f():\n    return A()", Status.ERROR),
        ("def f():\n    return {1: 2}.items()", Status.ERROR),
        ("def f():\n    raise ValueError('no')", Status.ERROR),
        ("def f():\n    yield 1", Status.UNSUPPORTED),
        ("import heapq\ndef f():\n    return 1", Status.UNSUPPORTED),
        ("def g():\n    return 1", Status.UNSUPPORTED),
        ("def f(:", Status.UNSUPPORTED),
        ("_dumps_ = 1\ndef f():\n    return 1", Status.UNSUPPORTED),
        ("def f():\n    return 1\ndef _dumps_(value):\n    return [value]", Status.POLICY),
    ],
)
def test_each_end_has_its_status(monty: LayerRunner, code: str, status: Status) -> None:
    assert run(monty, code).status is status


def test_many_values_end_the_program_and_hold_nobody_up(monty: LayerRunner) -> None:
    small = Limits(timeout_s=5.0, value_bytes=1_000)
    assert run(monty, "def f():\n    return [0] * 1_000", limits=small).status is Status.OUTPUT_LIMIT
    code = "def f():\n    return {k * (2**61 - 1): 0 for k in range(300)}"
    outcome = run(monty, code)
    assert outcome.error == "NotPlain"


def test_an_expression_has_a_value(monty: LayerRunner) -> None:
    assert monty.run(Program(code="[1 + 1]"), LIMITS).results == (Returned(value=[2]),)
    assert monty.run(Program(code="'a')\nprint(('b'"), LIMITS).status is Status.UNSUPPORTED


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return sum(i for i in x)",
        "def f(x):\n    return list(map(str, filter(None, x)))",
        "def f(x):\n    for i, (a, b) in enumerate(zip(x, x)):\n        print(i, a, b)",
        "def f(x):\n    return ', '.join(reversed(x))",
        "def f(x):\n    return [*map(str, x)], max(x, key=lambda a: -a)",
        "def f(x):\n    a, b = map(int, x)\n    return a + b",
    ],
)
def test_lazy_things_that_are_consumed_on_the_spot_stay(code: str) -> None:
    assert differs(code) is None


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def f(x):\n    return (i for i in x)", "keeps a generator"),
        ("def f(x):\n    return map(str, x)", "keeps what map gives"),
        ("def f(x):\n    z = zip(x, x)\n    return z", "keeps what zip gives"),
        ("def f(x):\n    return [reversed(x)]", "keeps what reversed gives"),
        ("m = map\ndef f(x):\n    return m(str, x)", "passes map on"),
        ("def f(x):\n    list = lambda y: y\n    return list(map(str, x))", "binds list"),
        ("def list(y):\n    return y", "binds list"),
        ("from collections import deque\ndef f(x):\n    return deque(x)", "uses deque"),
        ("def f(", "cannot be parsed: SyntaxError"),
        ("x = 1\n" * 20_000, "longer than 32000 characters"),
    ],
)
def test_code_that_monty_would_run_otherwise_is_left_to_cpython(code: str, why: str) -> None:
    assert differs(code) == why
