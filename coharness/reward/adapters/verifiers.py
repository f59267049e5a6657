"""A reward as the verifiers package calls it: an async function of `prompt` and `completion`, alone or in a rubric.

A rollout that could not be scored raises NotScored, which verifiers records as an error of that rollout.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from coharness.records.errors import Boundary, PreflightError
from coharness.reward.adapters.scorer import NotScored, Scorer, text_of

AsyncReward = Callable[..., Awaitable[float]]


def verifiers_reward(scorer: Scorer, *, name: str = "coharness_judge") -> AsyncReward:
    """The function; the scorer runs in a thread, so that a slow judge does not hold up the event loop."""

    async def reward(prompt: Any, completion: Any, **_: Any) -> float:
        (judgment,) = await asyncio.to_thread(scorer.score_all, [(text_of(prompt), text_of(completion))])
        if judgment.value is None:
            raise NotScored(Boundary.VERIFIER, f"a rollout is {judgment.outcome}: {judgment.reason}")
        return judgment.value

    reward.__name__ = name
    return reward


def verifiers_rubric(scorer: Scorer, *, weight: float = 1.0) -> Any:
    """A `verifiers.Rubric` with this one reward.

    Raises:
        PreflightError: verifiers is not installed.
    """
    try:
        verifiers: Any = importlib.import_module("verifiers")
    except ImportError as error:
        raise PreflightError(
            "this rubric needs the package verifiers; install it with: pip install verifiers"
        ) from error
    return verifiers.Rubric(funcs=[verifiers_reward(scorer)], weights=[weight])
