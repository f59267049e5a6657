import math
from typing import Any

import pytest

from coharness.records.errors import Boundary, BoundaryError
from coharness.records.protocols import Check, Verifier
from coharness.records.task import VerifierKind, VerifierSpec
from coharness.reward.verify import VerifierRouter
from coharness.tasks.sources import ScoreFunction

MINE = VerifierSpec(kind=VerifierKind.PYTHON, params={"family": "mine"})


def check(kind: VerifierKind, expected: str, answer: str, **params: Any) -> Check:
    return VerifierRouter().check(VerifierSpec(kind=kind, params=params), "", expected, answer)


def with_score(function: ScoreFunction) -> Verifier:
    return VerifierRouter({"mine": function})


@pytest.mark.parametrize(
    "kind", [kind for kind in VerifierKind if kind not in (VerifierKind.PYTHON, VerifierKind.CODE)]
)
def test_the_expected_answer_is_correct_whatever_the_verifier(kind: VerifierKind) -> None:
    assert check(kind, "__import__('os') is text here", " __import__('os') is text here\n") == Check(
        correct=True, partial=1.0
    )


def test_each_kind_goes_to_its_verifier() -> None:
    assert check(VerifierKind.EXACT, "abcd", "abxx") == Check(
        correct=False, partial=0.5, feedback="differs from the expected answer"
    )
    assert check(VerifierKind.NUMERIC, "1,000", "1000.0").correct
    assert check(VerifierKind.CHOICE, "A", "red", choices=["red", "blue"]).correct
    refused = check(VerifierKind.REASONING_GYM, "4", "open('x')")
    assert refused == Check(correct=False, partial=0.0, feedback="the answer holds 'open('")


def test_a_users_score_decides_and_is_kept_as_partial_credit() -> None:
    verifier = with_score(lambda question, expected, answer: len(answer) / len(expected))
    assert verifier.check(MINE, "", "abcd", "xyzw") == Check(correct=True, partial=1.0)
    half = verifier.check(MINE, "", "abcd", "ab")
    assert (half.correct, half.partial) == (False, 0.5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.1, None, "1", [1]])
def test_a_users_score_outside_the_unit_interval_is_a_failure_never_a_number(value: Any) -> None:
    with pytest.raises(BoundaryError, match=r"score function of mine gave .* in \[0, 1\]") as failure:
        with_score(lambda question, expected, answer: value).check(MINE, "", "a", "b")
    assert failure.value.boundary is Boundary.VERIFIER


def test_a_users_score_that_raises_is_a_failure_of_the_verifier() -> None:
    with pytest.raises(BoundaryError, match="verifier: ZeroDivisionError"):
        with_score(lambda question, expected, answer: 1 / 0).check(MINE, "", "a", "b")


def test_a_family_without_a_score_function_is_named() -> None:
    with pytest.raises(BoundaryError, match="no score function for family 'mine'"):
        VerifierRouter().check(MINE, "", "a", "b")
