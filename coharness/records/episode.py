"""Episodes: the full record of one attempt, and its Arrow schema in the replay store.

Invariants: token ids only, aligned lists; `loss_mask` is true exactly on tokens that the policy wrote; `logprobs` holds
the behaviour log-probability of those tokens under the temperature-scaled distribution they were drawn from, 0 elsewhere.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from coharness.records.ids import ItemId

EPISODE_SCHEMA_VERSION = 2
"""2: which judge saw an attempt, and the parts that it gave (2026-12-01)."""


class StopReason(StrEnum):
    """Why the policy stopped writing."""

    EOS = "eos"
    "It wrote the end-of-sequence token."
    LENGTH = "length"
    "It ran out of its token budget."
    ABORTED = "aborted"
    "It was withdrawn while decoding."


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A training score with its parts kept, so that it can be weighted anew without a re-run."""

    value: float
    exact: float
    "1 where the verifier accepts the first final answer; this alone is J."
    partial: float
    format: float
    length: float
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPart:
    """One part that a judge gave, beside the verifier's parts in `Score`."""

    name: str
    "`judge/score` or `judge/<criterion>`."
    outcome: str
    "A PartOutcome's value."
    value: float | None
    "In [0, 1] where the outcome is ok, else None."


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One attempt."""

    item: ItemId
    sample: int
    "Index in the group, 0..G-1."
    policy: str
    step: int
    harness: str
    task: str
    family: str
    level: int
    task_seed: int
    format: str
    purpose: str
    temperature: float
    token_ids: list[int]
    "Prompt, then what the policy wrote, over all turns [T]."
    loss_mask: list[bool]
    logprobs: list[float]
    prompt_length: int
    "Tokens before the first one that the policy wrote."
    reference_ids: list[int]
    "A reference completion of the task in this format, with its end token [R]; what supervision trains on."
    answer: str | None
    "The answer that was read, None where none could be."
    stop_reason: StopReason
    score: Score
    judge: str = ""
    "The version of the judge that was asked, empty where none was."
    judged: tuple[JudgedPart, ...] = ()
    "What it gave."

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.loss_mask) == len(self.logprobs):
            raise ValueError(
                "an episode's token_ids, loss_mask and logprobs must be aligned, got lengths "
                f"{len(self.token_ids)}, {len(self.loss_mask)}, {len(self.logprobs)}"
            )


EPISODE_SCHEMA = pa.schema(
    [
        pa.field("item", pa.int64(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("harness", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("task_seed", pa.int64(), nullable=False),
        pa.field("format", pa.string(), nullable=False),
        pa.field("purpose", pa.string(), nullable=False),
        pa.field("temperature", pa.float32(), nullable=False),
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("loss_mask", pa.list_(pa.bool_()), nullable=False),
        pa.field("logprobs", pa.list_(pa.float32()), nullable=False),
        pa.field("prompt_length", pa.int32(), nullable=False),
        pa.field("reference_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("answer", pa.string()),
        pa.field("stop_reason", pa.string(), nullable=False),
        pa.field("score", pa.float32(), nullable=False),
        pa.field("exact", pa.float32(), nullable=False),
        pa.field("partial", pa.float32(), nullable=False),
        pa.field("format_ok", pa.float32(), nullable=False),
        pa.field("length_left", pa.float32(), nullable=False),
        pa.field("feedback", pa.string(), nullable=False),
        pa.field("judge", pa.string(), nullable=False),
        pa.field(
            "judged",
            pa.list_(
                pa.struct(
                    [
                        pa.field("name", pa.string(), nullable=False),
                        pa.field("outcome", pa.string(), nullable=False),
                        pa.field("value", pa.float32()),
                    ]
                )
            ),
            nullable=False,
        ),
    ],
    metadata={"coharness.schema": f"episode/{EPISODE_SCHEMA_VERSION}"},
)
"""One row an episode."""


def episodes_to_table(episodes: list[Episode]) -> pa.Table:
    """Episodes as one Arrow table with `EPISODE_SCHEMA`."""
    columns: dict[str, list[Any]] = {name: [] for name in EPISODE_SCHEMA.names}
    for e in episodes:
        row = (
            e.item, e.sample, e.policy, e.step, e.harness, e.task, e.family, e.level, e.task_seed, e.format, e.purpose,
            e.temperature, e.token_ids, e.loss_mask, e.logprobs, e.prompt_length, e.reference_ids, e.answer,
            e.stop_reason.value, e.score.value, e.score.exact, e.score.partial, e.score.format, e.score.length,
            e.score.feedback, e.judge, [{"name": p.name, "outcome": p.outcome, "value": p.value} for p in e.judged],
        )  # fmt: skip
        for name, value in zip(EPISODE_SCHEMA.names, row, strict=True):
            columns[name].append(value)
    return pa.table(columns, schema=EPISODE_SCHEMA)


def episodes_from_table(table: pa.Table) -> list[Episode]:
    """The inverse of `episodes_to_table`, in row order."""
    return [
        Episode(
            item=ItemId(r["item"]), sample=r["sample"], policy=r["policy"], step=r["step"], harness=r["harness"],
            task=r["task"], family=r["family"], level=r["level"], task_seed=r["task_seed"], format=r["format"],
            purpose=r["purpose"], temperature=r["temperature"], token_ids=r["token_ids"], loss_mask=r["loss_mask"],
            logprobs=r["logprobs"], prompt_length=r["prompt_length"], reference_ids=r["reference_ids"],
            answer=r["answer"], stop_reason=StopReason(r["stop_reason"]),
            score=Score(value=r["score"], exact=r["exact"], partial=r["partial"], format=r["format_ok"],
                        length=r["length_left"], feedback=r["feedback"]),
            judge=r["judge"], judged=tuple(JudgedPart(**part) for part in r["judged"]),
        )
        for r in table.to_pylist()
    ]  # fmt: skip
