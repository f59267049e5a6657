import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.records.errors import Boundary, BoundaryError
from coharness.reward.verify.text import check_choice, check_exact, check_numeric, leading_share, parse_number

GSM8K = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "gsm8k"
COLOURS = {"choices": ["red", "blue", "dark blue"]}


def equal(expected: str, answer: str, **params: Any) -> bool:
    return check_numeric(expected, answer, params).correct


# Exact --------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=30), st.text(max_size=30))
def test_partial_credit_is_the_share_of_equal_leading_characters(expected: str, answer: str) -> None:
    check = check_exact(expected, answer)
    a, b = expected.strip(), answer.strip()
    share = sum(a[:n] == b[:n] for n in range(1, min(len(a), len(b)) + 1)) / max(len(a), len(b), 1)
    assert check.correct == (a == b)
    assert check.partial == (1.0 if check.correct else share)
    assert check.correct or check.partial < 1


def test_writing_on_does_not_raise_partial_credit() -> None:
    assert leading_share("abcd", "ab") == 0.5
    assert leading_share("abcd", "abcd" * 10) == 0.1
    assert leading_share("abcd", "bcda") == 0
    assert not check_exact("Paris", "paris").correct


# Numeric ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("1234567", "1,234,567"),
        ("-3", "−3"),
        ("-5", "-$5"),
        ("5", "$5.00"),
        ("5", "\\$5"),
        ("5", "5 €"),
        ("0.75", "3/4"),
        ("1.75", "1 3/4"),
        ("-1.75", "-1 3/4"),
        ("50", "50%"),
        ("0.5", "50%"),
        ("0.5", "50\\%"),
        ("50%", "0.5"),
        ("50%", "50"),
        ("18", "18."),
        ("1000", "1e3"),
        (".5", "0.5"),
        ("0.3", "0.30000000000000004"),
    ],
)
def test_numbers_are_equal_however_they_are_written(expected: str, answer: str) -> None:
    assert equal(expected, answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("1234567", "1,23,4567"),
        ("5", "5 or 6"),
        ("5", "five"),
        ("5", "--5"),
        ("5", "5/0"),
        ("0.5%", "50%"),
        ("5000", "50%"),
        ("5", ""),
        ("5", "nan"),
        ("5", "inf"),
        ("5", "5 dollars and 50 cents"),
        ("5", "1e999999999"),
        ("5", "5" * 5_000),
        ("5", "٥"),
        ("0.333", "1/3"),
    ],
)
def test_what_is_another_number_or_none_is_wrong(expected: str, answer: str) -> None:
    assert not equal(expected, answer)


def test_a_tolerance_is_absolute_or_relative() -> None:
    assert equal("100", "100.5", tolerance=0.5)
    assert not equal("100", "100.6", tolerance=0.5)
    assert equal("200", "199", relative=0.01)
    assert equal("-200", "-199", relative=0.01)
    assert not equal("0", "0.001", relative=0.01)


@given(st.fractions(max_denominator=10_000))
def test_a_written_number_is_read_back_exactly(value: Fraction) -> None:
    parsed = parse_number(str(value))
    assert parsed == (value, False)


@given(st.integers(-(10**15), 10**15))
def test_thousands_separators_change_nothing(value: int) -> None:
    assert parse_number(f"{value:,}") == (Fraction(value), False)


@pytest.mark.parametrize("params", [{"tolerance": -1}, {"relative": math.nan}, {"tolerance": "1"}, {"relative": True}])
def test_a_tolerance_that_is_none_is_a_failure_of_the_verifier(params: dict[str, Any]) -> None:
    with pytest.raises(BoundaryError, match="finite number >= 0"):
        check_numeric("1", "2", params)


def test_an_expected_answer_that_is_no_number_is_a_failure_of_the_verifier() -> None:
    with pytest.raises(BoundaryError, match="'many' is no number") as failure:
        check_numeric("many", "3", {})
    assert failure.value.boundary is Boundary.VERIFIER


def test_the_recorded_solutions_of_gsm8k_are_judged_as_their_authors_did() -> None:
    if not GSM8K.is_dir():
        pytest.skip(f"the recorded GSM8K solutions are not at {GSM8K}")
    lines = (GSM8K / "test.jsonl").read_text(encoding="utf-8").splitlines()
    expected = {row["question"]: row["answer"].rpartition("#### ")[2] for row in map(json.loads, lines)}
    correct: Counter[str] = Counter()
    for line in (GSM8K / "example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            answer = row[model]["solution"].rpartition("A: ")[2]
            verdict = check_numeric(expected[row["question"]], answer, {}).correct
            assert verdict == row[model]["is_correct"], (model, row["question"])
            correct[model] += verdict
    assert dict(correct) == {
        "6b_finetuning": 286, "6b_verification": 515, "175b_finetuning": 458, "175b_verification": 742
    }  # fmt: skip


# Choice -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", ["B", "blue", "(b)"])
@pytest.mark.parametrize("answer", ["B", "b", "(B)", "b.", "B) blue", " Blue ", "B: BLUE"])
def test_a_choice_is_named_by_letter_or_text(expected: str, answer: str) -> None:
    assert check_choice(expected, answer, COLOURS).correct


@pytest.mark.parametrize("answer", ["A", "C", "D", "dark blue", "B) red", "B or C", "blue or red", "", "the blue one"])
def test_another_choice_or_several_are_wrong(answer: str) -> None:
    assert not check_choice("B", answer, COLOURS).correct


def test_a_text_that_is_one_letter_long_wins_over_the_letter() -> None:
    assert check_choice("a", "B", {"choices": ["b", "a"]}).correct is False
    assert check_choice("a", "A", {"choices": ["b", "a"]}).correct


@pytest.mark.parametrize(("expected", "params"), [("B", {}), ("B", {"choices": "red"}), ("green", COLOURS)])
def test_a_choice_task_without_a_right_choice_is_a_failure_of_the_verifier(
    expected: str, params: dict[str, Any]
) -> None:
    with pytest.raises(BoundaryError, match="choice"):
        check_choice(expected, "A", params)
