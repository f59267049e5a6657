"""Toys to train on: an untrained model of two layers, episodes that a trainer would accept, and jobs that name them."""

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from coharness.policy.bases import BaseSpec, LoadedBase
from coharness.policy.codec import RawCodec
from coharness.policy.tiny import EOS, build_tokenizer, new_model, tiny_config
from coharness.policy.weights import tensor_digest
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.ids import ItemId, JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsRef
from coharness.records.protocols import TextCodec
from coharness.records.training import TrainJob
from coharness.records.work import Purpose

_LETTERS: Final = "abcdef"


def random_base(*, width: int = 16, seed: int = 0) -> LoadedBase:
    """An untrained model of two layers with the tiny base's characters; small enough that an update takes milliseconds."""
    tokenizer = build_tokenizer()
    config = tiny_config()
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = width, 2 * width, 2
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 2, 1, width // 2
    model = new_model(config, seed).eval().requires_grad_(False)
    codec = RawCodec(tokenizer, tokenizer.token_to_id(EOS))
    spec = BaseSpec(
        name="random",
        path=Path("random"),
        digest=tensor_digest(dict(model.named_parameters())),
        is_chat=False,
        num_parameters=sum(p.numel() for p in model.parameters()),
        max_context=config.max_position_embeddings,
        num_bytes=sum(p.nbytes for p in model.parameters()),
    )
    return LoadedBase(spec=spec, model=model, codec=codec)


def toy_episodes(
    codec: TextCodec,
    items: range,
    *,
    group_size: int = 1,
    seed: int = 0,
    word_length: int = 5,
    purpose: Purpose = Purpose.TRAIN,
) -> pa.Table:
    """Episodes on the task of copying a word; every second sample is right, so that groups have spread.

    Args:
        codec: Of the base.
        items: One group each.
        group_size: Episodes a group; with 1, every second group is solved.
        seed: Of the words.
        word_length: Characters of a word.
        purpose: What the episodes were drawn for.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for item in items:
        word = "".join(rng.choice(list(_LETTERS), word_length))
        prompt, reference = codec.encode_prompt(f"copy {word}="), codec.encode_completion(word)
        for sample in range(group_size):
            right = (item + sample) % 2 == 0
            written = reference if right else codec.encode_completion(word[::-1])
            episodes.append(
                Episode(
                    item=ItemId(item),
                    sample=sample,
                    policy="p0",
                    step=0,
                    harness="h-toy",
                    task=f"t{item}",
                    family="copy",
                    level=1,
                    task_seed=item,
                    format="plain",
                    purpose=purpose.value,
                    temperature=1.0,
                    token_ids=prompt + written,
                    loss_mask=[False] * len(prompt) + [True] * len(written),
                    logprobs=[0.0] * len(prompt) + [-2.0] * len(written),
                    prompt_length=len(prompt),
                    reference_ids=reference,
                    answer=word,
                    stop_reason=StopReason.EOS,
                    score=Score(value=float(right), exact=float(right), partial=0.0, format=1.0, length=0.0),
                )
            )
    return episodes_to_table(episodes)


def toy_job(
    start: PolicyVersion, items: range, *, step: int, borrowed: range = range(0), learning_rate: float = 1e-3
) -> TrainJob:
    """A job on the groups `items`."""
    return TrainJob(
        id=JobId(step),
        start=start,
        step=step,
        hyperparameters={"learning_rate": learning_rate, "temperature": 1.0},
        items=tuple(map(ItemId, items)),
        borrowed=tuple(map(ItemId, borrowed)),
        seed=1_000 + step,
    )


def base_version(base: WeightsRef, policy: str = "p0") -> PolicyVersion:
    """Version 0 of a member that starts from the base."""
    return PolicyVersion(ref=VersionRef(PolicyId(policy), 0), weights=base, parents=(), operator="base")
