import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.records.harness import RewardGenes
from coharness.records.protocols import Check
from coharness.reward.score import score_episode

UNIT = st.floats(0, 1)
WEIGHT = st.floats(-5, 5)


@given(correct=st.booleans(), partial=UNIT, used=st.integers(0, 90), weights=st.tuples(WEIGHT, WEIGHT, WEIGHT, WEIGHT))
def test_the_value_is_the_weighted_sum_of_its_kept_parts(
    correct: bool, partial: float, used: int, weights: tuple[float, float, float, float]
) -> None:
    exact, part, form, length = weights
    genes = RewardGenes(exact=exact, partial=part, format=form, length=length)
    score = score_episode(Check(correct=correct, partial=partial), True, used, 64, genes)
    assert (score.exact, score.partial, score.format) == (float(correct), partial, 1.0)
    assert score.length == max(0.0, 1 - used / 64)
    assert score.value == pytest.approx(exact * correct + part * partial + form + length * score.length)


def test_silence_earns_nothing() -> None:
    genes = RewardGenes(exact=1, partial=1, format=1, length=1)
    score = score_episode(None, False, 0, 64, genes)
    assert (score.value, score.exact, score.partial, score.format, score.length) == (0, 0, 0, 0, 0)
    assert score.feedback == "no answer could be read"


def test_feedback_of_the_verifier_is_kept() -> None:
    assert score_episode(Check(correct=False, partial=0, feedback="no"), True, 1, 2, RewardGenes()).feedback == "no"


@pytest.mark.parametrize("weight", [math.inf, math.nan])
def test_a_score_that_is_not_finite_is_an_error(weight: float) -> None:
    with pytest.raises(ValueError, match="the score is"):
        score_episode(Check(correct=True, partial=1.0), True, 1, 64, RewardGenes(exact=weight))
    with pytest.raises(ValueError, match="the score is"):
        score_episode(Check(correct=True, partial=math.nan), True, 1, 64, RewardGenes())


def test_a_check_without_an_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="checked exactly where one was read"):
        score_episode(Check(correct=True, partial=1.0), False, 1, 64, RewardGenes())
    with pytest.raises(ValueError, match="max_tokens >= 1"):
        score_episode(None, False, 1, 0, RewardGenes())
