"""Tests of code tasks, taken apart so that what they expect never meets the code that they examine.

A test is a function `check(candidate)` of asserts, as in HumanEval (Chen et al., 2021). It becomes a list of calls, which alone
goes to the candidate's guest, and a way to judge what comes back:

    every assert is `candidate(<literals>) == <literal>`  ──▶  compared here, by the host, as plain values
    anything else (loops, tolerances, random inputs)      ──▶  the test runs in a clean guest: once with the reference, which
                                                               records the calls, and then with recorded values in place
                                                               of the candidate

The clean guest holds no foreign code, so there is nothing in it that could reach the verdict; each assert gives one.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coharness.records.errors import Boundary, BoundaryError, TaskError
from coharness.reward.sandbox.guest.plain import NotPlain, dumps
from coharness.reward.sandbox.ladder import Sandbox
from coharness.reward.sandbox.literal import NotLiteral, evaluate_node
from coharness.reward.sandbox.program import Call, CallResult, Layer, Program, Returned, Status

MAX_CALLS = 2_000
_SEED = 20_260_101


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTest:
    """What a code task says of itself."""

    entry: str
    "The function that is asked for."
    preamble: str
    "Imports and helpers that the task gives; before the candidate's code and before the test."
    test: str
    "Source that defines `check(candidate)`."
    reference: str
    "A right solution: source of the function `entry`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """`candidate(...)` of one call, compared with a plain value."""

    expected: Any
    relation: str
    "equal, is, true or false."

    def holds(self, result: CallResult) -> bool:
        """Whether a call's result satisfies it."""
        if not isinstance(result, Returned):
            return False
        match self.relation:
            case "equal":
                # Both sides are plain by exact type, so that no operator of the candidate's takes part.
                return bool(result.value == self.expected)
            case "is":
                return result.value is self.expected
            case "true":
                return bool(result.value)
            case _:
                return not result.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A test ready to be used: the calls to make, and how to judge."""

    calls: tuple[Call, ...]
    assertions: tuple[Assertion, ...] = ()
    "One a call; empty where `judge` judges."
    judge: str = ""
    "Program of the clean guest, with the entry `examine_`."
    num_verdicts: int
    judge_layer: Layer = Layer.LITERAL

    def verdicts(self, results: Sequence[CallResult], sandbox: Sandbox) -> tuple[bool, ...] | None:
        """One a verdict, False where it fails or was not reached; None where the clean guest failed as infrastructure."""
        if not self.judge:
            held = [a.holds(r) for a, r in zip(self.assertions, results, strict=False)]
            return tuple(held) + (False,) * (self.num_verdicts - len(held))
        answers = [["value", r.value] if isinstance(r, Returned) else ["raised", r.error] for r in results]
        asked = [[list(call.args), dict(call.kwargs)] for call in self.calls]
        program = Program(code=self.judge, entry="examine_", calls=(Call(args=(asked, answers)),))
        outcome = sandbox.run(program, only=self.judge_layer)
        if outcome.status is Status.INFRA:
            return None
        result = outcome.results[0] if outcome.results else None
        given = result.value if isinstance(result, Returned) and isinstance(result.value, list) else []
        given = [verdict is True for verdict in given][: self.num_verdicts]
        return tuple(given) + (False,) * (self.num_verdicts - len(given))


def prepare(test: CodeTest, sandbox: Sandbox) -> Examination:
    """Take a test apart, and see that its own reference passes it.

    Raises:
        TaskError: the test has no `check`, cannot run here, makes too many calls, or its own reference fails it.
        BoundaryError: the sandbox failed.
    """
    check = _find_check(test)
    split = _split(check)
    if split is not None:
        calls, assertions = split
        examination = Examination(calls=calls, assertions=assertions, num_verdicts=len(assertions))
    else:
        examination = _record(test, sandbox)
    reference = Program(code=f"{test.preamble}\n{test.reference}", entry=test.entry, calls=examination.calls)
    outcome = sandbox.run(reference)
    verdicts = examination.verdicts(outcome.results, sandbox)
    if outcome.status is Status.INFRA or verdicts is None:
        raise BoundaryError(Boundary.VERIFIER, f"the sandbox failed on a reference: {outcome.detail}")
    if not all(verdicts):
        raise TaskError(
            f"the reference of {test.entry} fails its own test ({outcome.status} in {outcome.layer}, {sum(verdicts)} of "
            f"{len(verdicts)} asserts hold); is the test the same each time it runs? Inputs may come from `random`, whose seed "
            "is set, and from nothing else that changes"
        )
    return examination


def _find_check(test: CodeTest) -> ast.FunctionDef:
    try:
        tree = ast.parse(test.test)
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"the test of {test.entry} is no Python: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1:
            return node
    raise TaskError(f"the test of {test.entry} defines no check(candidate)")


# Tests of literals -------------------------------------------------------------------------------------------------


def _split(check: ast.FunctionDef) -> tuple[tuple[Call, ...], tuple[Assertion, ...]] | None:
    """Calls and assertions where every statement is an assert on one call with literals; None otherwise."""
    candidate = check.args.args[0].arg
    calls, assertions = [], []
    for statement in check.body:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.Assert(test=ast.Constant(value=True)):
                continue
            case ast.Assert(test=test):
                try:
                    call, assertion = _read_assert(test, candidate)
                    dumps([list(call.args), dict(call.kwargs), assertion.expected])
                except (NotLiteral, NotPlain):
                    return None
                calls.append(call)
                assertions.append(assertion)
            case _:
                return None
    return (tuple(calls), tuple(assertions)) if 0 < len(calls) <= MAX_CALLS else None


def _read_assert(test: ast.expr, candidate: str) -> tuple[Call, Assertion]:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return _read_call(left, candidate), Assertion(expected=evaluate_node(right), relation="equal")
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None | True | False) as right]):
            return _read_call(left, candidate), Assertion(expected=right.value, relation="is")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _read_call(operand, candidate), Assertion(expected=None, relation="false")
    return _read_call(test, candidate), Assertion(expected=None, relation="true")


def _read_call(node: ast.expr, candidate: str) -> Call:
    match node:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name == candidate:
            kwargs: Mapping[str, Any] = {k.arg: evaluate_node(k.value) for k in keywords if k.arg is not None}
            if len(kwargs) == len(keywords):
                return Call(args=tuple(evaluate_node(argument) for argument in arguments), kwargs=kwargs)
    raise NotLiteral("is no call of the candidate")


# Tests that are programs -------------------------------------------------------------------------------------------

_RECORD = """
def record_():
    def candidate_(*args, **kwargs):
        calls_.append([copy.deepcopy(list(args)), copy.deepcopy(kwargs)])
        return {entry}(*args, **kwargs)
    check(candidate_)
    return [calls_, verdicts_]
"""
_EXAMINE = """
def examine_(asked, answers):
    position = [0]
    def candidate_(*args, **kwargs):
        index = position[0]
        position[0] = index + 1
        if index >= len(answers) or [list(args), kwargs] != asked[index]:
            raise RuntimeError("the test asked for something else than it did with the reference")
        kind, value = answers[index]
        if kind == "raised":
            raise errors_.get(value, RuntimeError)("the candidate raised")
        return value
    try:
        check(candidate_)
    except Exception:
        verdicts_.append(False)
    return verdicts_
"""
_HEAD = f"""
import copy
import random
random.seed({_SEED})
calls_ = []
verdicts_ = []
errors_ = {{
    "ValueError": ValueError, "TypeError": TypeError, "IndexError": IndexError, "KeyError": KeyError,
    "ZeroDivisionError": ZeroDivisionError, "AssertionError": AssertionError,
}}
"""


class _Verdicts(ast.NodeTransformer):
    """Turns each assert into one more verdict, so that the first failure hides none of the others."""

    def visit_Assert(self, node: ast.Assert) -> ast.Try:
        template = "try:\n    verdicts_.append(bool(0))\nexcept Exception:\n    verdicts_.append(False)"
        made = ast.parse(template).body[0]
        assert isinstance(made, ast.Try)
        (append,) = made.body
        assert isinstance(append, ast.Expr)
        assert isinstance(append.value, ast.Call)
        (call,) = append.value.args
        assert isinstance(call, ast.Call)
        call.args = [node.test]
        return made


def _record(test: CodeTest, sandbox: Sandbox) -> Examination:
    judged = ast.unparse(ast.fix_missing_locations(_Verdicts().visit(ast.parse(test.test))))
    record = f"{test.preamble}\n{test.reference}\n{_HEAD}\n{judged}\n{_RECORD.format(entry=test.entry)}"
    outcome = sandbox.run(Program(code=record, entry="record_", calls=(Call(),)))
    result = outcome.results[0] if outcome.results else None
    if outcome.status is not Status.OK or not isinstance(result, Returned):
        raise TaskError(
            f"the test of {test.entry} does not run with its reference in the sandbox: {outcome.status} in {outcome.layer}, "
            f"{outcome.error} {outcome.detail}".rstrip()
        )
    asked, verdicts = result.value
    if not 0 < len(asked) <= MAX_CALLS:
        raise TaskError(f"the test of {test.entry} makes {len(asked)} calls, expected 1 to {MAX_CALLS}")
    return Examination(
        calls=tuple(Call(args=tuple(args), kwargs=kwargs) for args, kwargs in asked),
        # The reference stands here too: some tests compare with it under the candidate's own name.
        judge=f"{test.preamble}\n{test.reference}\n{_HEAD}\n{judged}\n{_EXAMINE}",
        num_verdicts=len(verdicts),
        judge_layer=outcome.layer,
    )
