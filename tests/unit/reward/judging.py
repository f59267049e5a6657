"""Builders for tests of judges."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coharness.reward.judges.budget import Budget
from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.judges.client import ChatClient
from coharness.reward.judges.pool import EndpointPool
from coharness.reward.judges.rubric import Rubric, rubric_from_json
from coharness.reward.judges.rubric_judge import RubricJudge
from coharness.testing.judge_server import Script, ScriptedServer

RUBRIC: Rubric = rubric_from_json(
    {
        "name": "maths",
        "about": "Solutions of word problems.",
        "criteria": [
            {"name": "steps", "text": "Each step follows from the one before.", "weight": 3},
            {"name": "clarity", "text": "A reader can follow it.", "choices": {"poor": 0, "fair": 0.5, "good": 1}},
        ],
    }
)


def goodness(question: str, candidate: str) -> float:
    """The scripted judge's taste: a candidate that reasons is good."""
    return 0.9 if "because" in candidate else 0.1


@contextmanager
def judge_on(
    script: Script, *, cache: Path | None = None, keep: bool = True, **options: Any
) -> Iterator[tuple[RubricJudge, ScriptedServer]]:
    """A judge on a scripted server."""
    client = {"model": "scripted", "timeout_s": 5.0, **options.pop("client", {})}
    budget = options.pop("budget", Budget(max_calls=1000, max_tokens=10**9))
    attempts = options.pop("attempts", 2)
    with ScriptedServer(script) as server:
        pool = EndpointPool([ChatClient(base=server.base, **client)], attempts=attempts, sleep=lambda _: None)
        kept = JudgmentCache(cache) if keep else None
        judge = RubricJudge(options.pop("rubric", RUBRIC), pool, budget=budget, cache=kept, concurrency=4, **options)
        try:
            yield judge, server
        finally:
            judge.close()
