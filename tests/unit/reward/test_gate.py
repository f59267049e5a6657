import pytest

from coharness.reward.verify.guarded import MAX_ANSWER_CHARS, literal_gate

HARMLESS = [
    "42",
    "-3.5e-7",
    "3*x**2 - 9*x + 18",
    "4*exp(x)*sin(x) + C",
    "(85 - 57) * 2 + 44",
    "1 2 3\n4 5 6",
    '[["ai", "ia"], ["two", "tow"]]',
    "[[0, 1], [1, 0]]",
    "_ Q _ _\n_ _ _ Q",
    "ABCABCDAAAAABB",
    "Yes, Zoey is a knight.",
    "{'a': 1}",
    "2 <= x | y != 3",
]
HOSTILE = [
    "__import__('os').system('touch /tmp/x')",
    "open('/tmp/x', 'w').write('x')",
    "open ('/tmp/x')",
    "().__class__.__bases__[0].__subclasses__()",
    "getattr(x, '_' + '_class_' + '_')",
    "[getattr][0](x, 'real')",
    "(getattr)(x, 'real')",
    "[f(1) for f in [getattr]]",
    "[Abs(x, 'real') for Abs in [getattr]]",
    "[Abs(x, 1) for Abs in [getattr]]",
    "(Abs := getattr) + Abs(x, 1)",
    "Abs('getattr' + '(x)')",
    "exit()",
    "eval('1')",
    "exec('1')",
    "compile('1', '', 'eval')",
    "breakpoint()",
    "globals()['x']",
    "lambda: 1",
    "import os",
    "os.system",
    "os . system",
    "x\x00",
    "ａbs",
    "1" * (MAX_ANSWER_CHARS + 1),
]


@pytest.mark.parametrize("answer", HARMLESS)
def test_literals_formulas_and_words_pass(answer: str) -> None:
    assert literal_gate(answer) is None


@pytest.mark.parametrize("answer", HOSTILE)
def test_what_reaches_into_an_interpreter_is_refused_with_a_reason(answer: str) -> None:
    reason = literal_gate(answer)
    assert reason is not None
    assert reason.startswith("the answer ")


@pytest.mark.parametrize("answer", ["\\frac{1}{2}", "50\\%", "f(x) = (x+1)(x-1)", "$x \\in [0, 1)$", "5.x"])
def test_formulas_pass_where_a_formula_is_parsed(answer: str) -> None:
    assert literal_gate(answer, latex=True) is None
    assert literal_gate(answer) is not None


def test_words_of_an_interpreter_are_refused_in_formulas_too() -> None:
    for answer in ("__import__('os')", "lambda", "open (x)", "eval(1)", "a" * 5_000):
        assert literal_gate(answer, latex=True) is not None
