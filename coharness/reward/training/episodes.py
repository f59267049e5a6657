"""Examples as episodes, the one shape that trainers take: a prompt, what the judge is to say, and the target as the score."""

from collections.abc import Callable, Sequence
from enum import StrEnum

import pyarrow as pa

from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.ids import ItemId
from coharness.records.protocols import TextCodec
from coharness.records.work import Purpose
from coharness.reward.training.examples import Comparison, Example, Settled, comparisons
from coharness.reward.training.verdict_prompt import VerdictTokens, completion

Prompt = Callable[[str, str], list[int]]
"""(question, answer) -> prompt ids."""


class JudgeObjective(StrEnum):
    """How a judge is trained."""

    GENERATIVE = "generative"
    "It learns to write a reason, where there is one, and its verdict."
    PAIRWISE = "pairwise"
    "The read-out of the better answer is to exceed that of the worse (Bradley and Terry, 1952)."
    REGRESSION = "regression"
    "The verdict's probability is to be the answer's score."


def judge_episodes(
    examples: Sequence[Example], objective: JudgeObjective, codec: TextCodec, tokens: VerdictTokens, prompt: Prompt
) -> pa.Table:
    """Episodes (`EPISODE_SCHEMA`) of all examples, numbered from 0: an item is a comparison under `pairwise`, else an answer."""
    made: list[Episode] = []
    if objective is JudgeObjective.PAIRWISE:
        for item, pair in enumerate(comparisons(examples)):
            made += [_read_out(item, n, pair.question, a, tokens, prompt) for n, a in enumerate(_both(pair))]
    else:
        answers = ((e.question, answer) for e in examples for answer in e.answers)
        for item, (question, answer) in enumerate(answers):
            if objective is JudgeObjective.REGRESSION:
                made.append(_read_out(item, 0, question, answer, tokens, prompt))
            else:
                written = completion(codec, tokens, is_good=answer.score >= 0.5, reason=answer.reason)
                made.append(_episode(item, 0, prompt(question, answer.text), written, answer.score))
    return episodes_to_table(made)


def _both(pair: Comparison) -> tuple[Settled, Settled]:
    return pair.better, pair.worse


def _read_out(item: int, sample: int, question: str, answer: Settled, tokens: VerdictTokens, prompt: Prompt) -> Episode:
    return _episode(item, sample, prompt(question, answer.text), [tokens.good], answer.score)


def _episode(item: int, sample: int, prompt_ids: list[int], written: list[int], score: float) -> Episode:
    return Episode(
        item=ItemId(item),
        sample=sample,
        policy="judge",
        step=0,
        harness="judge",
        task=f"example-{item}",
        family="judge",
        level=1,
        task_seed=item,
        format="verdict",
        purpose=Purpose.TRAIN.value,
        temperature=1.0,
        token_ids=prompt_ids + written,
        loss_mask=[False] * len(prompt_ids) + [True] * len(written),
        logprobs=[0.0] * (len(prompt_ids) + len(written)),
        prompt_length=len(prompt_ids),
        reference_ids=[],
        answer=None,
        stop_reason=StopReason.EOS,
        score=Score(value=score, exact=score, partial=score, format=1.0, length=0.0),
    )
