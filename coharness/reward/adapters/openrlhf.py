"""`reward_func` as OpenRLHF loads it from a file: `reward_func(queries, prompts, labels) -> {"rewards", "scores", "extra_logs"}`.

Queries are prompt and completion together. The remote form of the same shape is the service's `/get_reward`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from coharness.records.errors import Boundary
from coharness.reward.adapters.scorer import NotScored, Scorer

RewardFunc = Callable[..., dict[str, Any]]


def openrlhf_reward_func(scorer: Scorer, *, tensor: Callable[[list[float]], Any] = list) -> RewardFunc:
    """The function; `tensor` makes what the trainer computes with, such as `torch.tensor`.

    It raises NotScored where a sample could not be scored: the shape has no place for that.
    """

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        items = [(prompt, query.removeprefix(prompt)) for query, prompt in zip(queries, prompts, strict=True)]
        judged = scorer.score_all(items)
        failed = [j for j in judged if j.value is None]
        if failed:
            raise NotScored(
                Boundary.VERIFIER,
                f"{len(failed)} of {len(items)} samples have no score; the first is {failed[0].outcome}",
            )
        values = [float(j.value or 0.0) for j in judged]
        flagged = [float(bool(j.flags)) for j in judged]
        return {"rewards": tensor(values), "scores": tensor(values), "extra_logs": {"flagged": tensor(flagged)}}

    return reward_func
