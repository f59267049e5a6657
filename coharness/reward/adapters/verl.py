"""`compute_score` as verl's reward managers call it, one sample a call.

verl has no word for "not known", and some of its managers turn an exception into 0. The default therefore raises and lets the
manager decide in the open; a constant may be named instead, and the returned fields then say that nothing was scored.
"""

from collections.abc import Callable, Mapping
from typing import Any

from coharness.records.errors import Boundary
from coharness.reward.adapters.scorer import NotScored, Scorer, text_of

ComputeScore = Callable[..., dict[str, Any]]


def verl_compute_score(
    scorer: Scorer, *, question_key: str = "question", when_unscored: float | None = None
) -> ComputeScore:
    """The function.

    Args:
        scorer: what scores.
        question_key: field of `extra_info` that holds the question.
        when_unscored: reward of a sample that could not be scored; None raises NotScored.
    """

    def compute_score(
        data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **_: Any
    ) -> dict[str, Any]:
        question = text_of((extra_info or {}).get(question_key, ""))
        (judgment,) = scorer.score_all([(question, solution_str)])
        if judgment.value is None:
            if when_unscored is None:
                raise NotScored(
                    Boundary.VERIFIER, f"a sample of {data_source!r} is {judgment.outcome}: {judgment.reason}"
                )
            return {"score": when_unscored, "outcome": judgment.outcome.value, "scored": 0.0}
        return {"score": judgment.value, "outcome": judgment.outcome.value, "scored": 1.0}

    return compute_score
