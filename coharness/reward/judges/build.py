"""A judge from a run's config."""

from collections.abc import Sequence
from pathlib import Path

from coharness.config.reward import JudgeSection
from coharness.reward.judges.budget import Budget
from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.judges.client import ChatClient
from coharness.reward.judges.pool import EndpointPool
from coharness.reward.judges.prompt import Precedent
from coharness.reward.judges.rubric import load_rubric
from coharness.reward.judges.rubric_judge import RubricJudge
from coharness.reward.judges.secrets import key_from_env


def build_judge(section: JudgeSection, cache_file: Path | None, *, precedents: Sequence[Precedent] = ()) -> RubricJudge:
    """The judge of a config section.

    Args:
        section: endpoints, rubric, budgets.
        cache_file: where judgments are kept; in memory where left out. Not used where the section says `cache: false`.
        precedents: settled cases to retrieve from.

    Raises:
        ConfigError: the rubric or an endpoint is wrong.
        PreflightError: the key's variable is not set, or retrieval is asked for and its package is missing.
    """
    key = key_from_env(section.api_key_env)
    clients = [
        ChatClient(
            base=base,
            model=section.model,
            key=key,
            timeout_s=section.timeout_s,
            max_output_tokens=section.max_output_tokens,
        )
        for base in section.endpoints
    ]
    recall = None
    if precedents:
        from coharness.reward.judges.retrieval import Precedents

        recall = Precedents(precedents)
    return RubricJudge(
        load_rubric(section.rubric),
        EndpointPool(clients, attempts=section.attempts),
        budget=Budget(max_calls=section.max_calls, max_tokens=section.max_tokens),
        cache=JudgmentCache(cache_file) if section.cache else None,
        concurrency=section.concurrency,
        recall=recall,
    )
