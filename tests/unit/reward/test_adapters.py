"""Adapters in the shapes that trainers call; none of them makes a number of a failure."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from coharness.records.errors import PreflightError
from coharness.reward.adapters.openrlhf import openrlhf_reward_func
from coharness.reward.adapters.scorer import NotScored, text_of
from coharness.reward.adapters.trl import trl_reward
from coharness.reward.adapters.verifiers import verifiers_reward, verifiers_rubric
from coharness.reward.adapters.verl import verl_compute_score
from coharness.testing.judge_server import Reply, fair_judge
from tests.unit.reward.judging import goodness, judge_on

GOOD, BAD = "4 because 2 and 2 are added", "4, trust me"
DOWN = Reply(status=500)


def mixed(request: dict[str, Any]) -> str | Reply:
    return DOWN if "outage" in request["messages"][-1]["content"] else str(fair_judge(goodness)(request))


def conversation(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def test_texts_are_found_in_strings_and_conversations() -> None:
    assert text_of("plain") == "plain"
    assert text_of(conversation("one", "two")) == "one\n\ntwo"
    assert text_of([{"role": "user", "content": [{"type": "text", "text": "piece"}, {"type": "image"}]}]) == "piece"
    assert text_of([{"role": "assistant", "content": None}]) == ""
    with pytest.raises(TypeError, match="expected a text or a list"):
        text_of(5)


def test_trl_gets_none_for_what_could_not_be_scored() -> None:
    with judge_on(mixed) as (judge, _):
        reward = trl_reward(judge, name="clarity")
        assert reward.__name__ == "clarity"
        assert reward(prompts=["q"] * 3, completions=[GOOD, BAD, "outage"], ground_truth=[1, 2, 3], trainer_state=None) == [
            1.0, 0.0, None,
        ]  # fmt: skip
        assert reward(prompts=[conversation("q")], completions=[conversation(GOOD)]) == [1.0]
        with pytest.raises(ValueError, match="zip"):
            reward(prompts=["q"], completions=[])


def test_verl_gets_a_score_or_an_error_and_a_constant_only_where_it_was_named() -> None:
    with judge_on(mixed) as (judge, _):
        score = verl_compute_score(judge)
        extra = {"question": "q"}
        assert score(data_source="gsm8k", solution_str=GOOD, ground_truth="4", extra_info=extra)["score"] == 1.0
        with pytest.raises(NotScored, match="gsm8k"):
            score("gsm8k", "outage", "4", extra)
        named = verl_compute_score(judge, when_unscored=0.0)
        assert named("gsm8k", "outage", "4", extra) == {"score": 0.0, "outcome": "infra", "scored": 0.0}


def test_openrlhf_gets_its_three_fields_or_an_error() -> None:
    with judge_on(mixed) as (judge, _):
        reward = openrlhf_reward_func(judge, tensor=tuple)
        made = reward(["q" + GOOD, "q" + BAD], ["q", "q"], ["4", "4"])
        assert made == {"rewards": (1.0, 0.0), "scores": (1.0, 0.0), "extra_logs": {"flagged": (0.0, 0.0)}}
        with pytest.raises(NotScored, match="1 of 2 samples"):
            reward(["q" + GOOD, "q outage"], ["q", "q"], ["4", "4"])


def test_verifiers_gets_an_async_reward_that_raises_on_failure() -> None:
    with judge_on(mixed) as (judge, _):
        reward = verifiers_reward(judge)
        call = {"prompt": conversation("q"), "answer": "4", "state": {}}
        assert asyncio.run(_await(reward(completion=conversation(GOOD), **call))) == 1.0
        with pytest.raises(NotScored):
            asyncio.run(_await(reward(completion="outage", **call)))


async def _await(made: Any) -> float:
    return float(await made)


def test_without_verifiers_the_rubric_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with judge_on(mixed) as (judge, _), pytest.raises(PreflightError, match="pip install verifiers"):
        verifiers_rubric(judge)


def test_without_bm25s_retrieval_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from coharness.reward.judges.retrieval import Corpus

    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(PreflightError, match="pip install"):
        Corpus(["a text"])


def bm25(query: Sequence[str], texts: Sequence[Sequence[str]], k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Lucene's form of BM25, by its formula."""
    import math

    n, mean = len(texts), sum(map(len, texts)) / len(texts)
    scores = []
    for words in texts:
        total = 0.0
        for term in query:
            df = sum(term in other for other in texts)
            tf = words.count(term)
            total += math.log(1 + (n - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * len(words) / mean))
        scores.append(total)
    return scores


def test_retrieval_ranks_by_bm25_and_never_shows_the_case_at_hand() -> None:
    pytest.importorskip("bm25s", reason="bm25s is not installed; the judge extra brings it")
    from coharness.reward.judges.prompt import Precedent
    from coharness.reward.judges.retrieval import Corpus, Precedents

    texts = [
        "how many apples are left",
        "what is the sum of two numbers",
        "how many pears and apples and plums",
        "name the capital",
    ]
    found = Corpus(texts).search("how many apples", 4)
    expected = bm25(["how", "many", "apples"], [t.split() for t in texts])
    assert [index for index, _ in found] == sorted((i for i in range(4) if expected[i] > 0), key=lambda i: -expected[i])
    assert [score for _, score in found] == pytest.approx([expected[i] for i, _ in found], rel=1e-4)
    assert Corpus(texts).search("zzz", 3) == []
    cases = [Precedent(question=t, candidate="c", value=1.0) for t in texts]
    recall = Precedents(cases)
    assert [p.question for p in recall("How many apples are left?")] == ["how many pears and apples and plums"]
    with judge_on(fair_judge(goodness), recall=recall) as (judge, server):
        judge.score("how many apples are here", GOOD)
        shown = server.requests[0]["messages"][-1]["content"]
        assert "precedents" in shown
        assert "how many pears and apples and plums" in shown
    with pytest.raises(ValueError, match="has a word"):
        Corpus(["", "!!"])
