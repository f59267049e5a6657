"""A reward function as TRL's GRPO and RLOO trainers call it: `reward_func(prompts=..., completions=..., **columns)`.

A completion that could not be scored gives None, which TRL leaves out of the group's baseline.
"""

from collections.abc import Callable, Sequence
from typing import Any

from coharness.reward.adapters.scorer import Scorer, text_of

RewardFunction = Callable[..., list[float | None]]


def trl_reward(scorer: Scorer, *, name: str = "coharness_judge") -> RewardFunction:
    """The function, under the name that TRL logs it by."""

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        items = [(text_of(p), text_of(c)) for p, c in zip(prompts, completions, strict=True)]
        return [judgment.value for judgment in scorer.score_all(items)]

    reward.__name__ = name
    return reward
