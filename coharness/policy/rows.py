"""Episode tables to training rows: which rows an update learns from, their advantages, and how they are cut into batches.

Owns the choice and the arithmetic that needs no model; works on whole columns, since an update has hundreds of rows and a
forward pass takes a tenth of a second. Invariants: everything is a pure function of the table's rows and the job's seed, and does
not depend on row order except where two rows tie; a row's loss mask is false on its first token, which nothing predicts. Driven
by the objectives (rows) and by the trainer (steps, micro-batches, padding).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

SPREAD: Final = 1e-6
"""Rewards of a group that differ by no more than this are equal; its episodes teach nothing."""


BATCH_OVERHEAD: Final = 100
"""What a micro-batch costs beside its tokens, in tokens: 9 ms against 90 us a token, measured forward and backward on the tiny
base on a CPU. In larger bases tokens are dearer, and so is the padding that too small a figure would save."""


class Advantage(StrEnum):
    """How the rewards of a group become advantages."""

    GRPO = "grpo"
    "Reward minus the group's mean, over its (population) standard deviation (Shao et al., 2024)."
    DR_GRPO = "dr_grpo"
    "Reward minus the group's mean; easy and hard tasks are not weighted up (Liu et al., 2025)."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Training rows of ragged length, laid end to end: R rows, N tokens."""

    token_ids: IntArray
    "[N]"
    offsets: IntArray
    "Row r is `[offsets[r], offsets[r + 1])` [R + 1]."
    loss_mask: BoolArray
    "Tokens that are learned from [N]."
    behaviour: FloatArray
    "Log-probability of each token where it was drawn, 0 elsewhere [N]."
    advantages: FloatArray
    "[R]"
    temperatures: FloatArray
    "What logits are divided by before they are log-probabilities [R]."
    counts: Mapping[str, float] = field(default_factory=dict)
    "What was kept and dropped, as metrics."
    unit: int = 1
    "Rows that belong together and stand side by side: 2 where rows are pairs. R is a multiple of it."

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.offsets) - 1

    @property
    def num_units(self) -> int:
        """Rows that belong together count as one."""
        return self.num_rows // self.unit

    @property
    def lengths(self) -> IntArray:
        """Tokens of each row [R]."""
        return np.diff(self.offsets)

    @property
    def trained_lengths(self) -> IntArray:
        """Tokens of each row that are learned from [R]."""
        return np.diff(np.concatenate(([0], np.cumsum(self.loss_mask, dtype=np.int64)))[self.offsets])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaddedRows:
    """Some rows side by side, padded on the right with token 0: under causal attention no token sees the padding."""

    token_ids: IntArray
    "[B, L]"
    flat: IntArray
    "Where each token of [B, L] stands in the flat arrays of `Rows`; 0 at padding."
    mask: BoolArray
    "Tokens that are learned from [B, L]; false in column 0 and at padding."


def sft_rows(
    own: pa.Table, borrowed: pa.Table, *, keep_solved: float, seed: int, max_tokens: int | None = None
) -> Rows:
    """Prompt and reference completion of one episode a group; the loss is on the reference.

    A group is an item. Groups with a failed episode are all kept, of the others a share `keep_solved`, chosen by a hash of
    (seed, item): what is solved needs little supervision, but none would let it fade.

    Args:
        own: Episodes of the member [any number of rows, `EPISODE_SCHEMA`].
        borrowed: Episodes of other members, selected by the same rule.
        keep_solved: Share of solved groups that is kept.
        seed: The job's seed.
        max_tokens: Rows longer than this are dropped and counted; None keeps all.
    """
    table = pa.concat_tables([own, borrowed])
    items, first, group = groups(table)
    solved = np.ones(len(items), dtype=bool)
    np.logical_and.at(solved, group, numbers(table, "exact") >= 1.0)
    kept = first[~solved | (hash_units(seed, items) < keep_solved)]

    prompt_ids, prompt_starts = ragged(table, "token_ids")
    reference_ids, reference_starts = ragged(table, "reference_ids")
    prompt_lengths = numbers(table, "prompt_length").astype(np.int64)[kept]
    reference_lengths = np.diff(reference_starts)[kept]
    has_reference = reference_lengths > 0
    fits = np.ones(len(kept), dtype=bool) if max_tokens is None else prompt_lengths + reference_lengths <= max_tokens
    usable = has_reference & fits
    kept, prompt_lengths, reference_lengths = kept[usable], prompt_lengths[usable], reference_lengths[usable]

    offsets = offsets_of(prompt_lengths + reference_lengths)
    token_ids = np.empty(offsets[-1], dtype=np.int64)
    prompt_places = spans(offsets[:-1], prompt_lengths)
    reference_places = spans(offsets[:-1] + prompt_lengths, reference_lengths)
    token_ids[prompt_places] = prompt_ids[spans(prompt_starts[kept], prompt_lengths)]
    token_ids[reference_places] = reference_ids[spans(reference_starts[kept], reference_lengths)]
    loss_mask = np.zeros(offsets[-1], dtype=bool)
    loss_mask[reference_places] = True
    return Rows(
        token_ids=token_ids,
        offsets=offsets,
        loss_mask=predicted(loss_mask, offsets),
        behaviour=np.zeros(offsets[-1], dtype=np.float32),
        advantages=np.ones(len(kept), dtype=np.float32),
        temperatures=np.ones(len(kept), dtype=np.float32),
        counts={
            "groups/solved": float(solved.sum()),
            "rows/borrowed": float((kept >= own.num_rows).sum()),
            "rows/too_long": float((~fits).sum()),
            "rows/no_reference": float((~has_reference).sum()),
        },
    )


def grpo_rows(own: pa.Table, *, advantage: Advantage, max_tokens: int | None = None) -> Rows:
    """Episodes with their behaviour log-probabilities, and their advantages inside their group (item).

    Groups without spread are dropped and counted: all their advantages are 0, they would only dilute the mean.

    Args:
        own: Episodes of the member [any number of rows, `EPISODE_SCHEMA`].
        advantage: How rewards become advantages.
        max_tokens: Rows longer than this are dropped and counted; None keeps all.

    Raises:
        ValueError: a reward or a behaviour log-probability is not finite, or a temperature is 0 (greedy episodes have no
            behaviour distribution to correct for).
    """
    items, _, group = groups(own)
    rewards = numbers(own, "score").astype(np.float64)
    temperatures = numbers(own, "temperature").astype(np.float32)
    token_ids, starts = ragged(own, "token_ids")
    logprobs, _ = ragged(own, "logprobs")
    for name, values in (("score", rewards), ("logprobs", logprobs)):
        if not np.isfinite(values).all():
            raise ValueError(
                f"episodes hold a non-finite value in {name}; expected finite ones (a failure is no score)"
            )
    if not (temperatures > 0).all():
        raise ValueError("episodes were decoded at temperature 0; an on-policy objective needs sampled ones")

    size = np.bincount(group, minlength=len(items))
    mean = np.bincount(group, weights=rewards, minlength=len(items)) / size
    centred = rewards - mean[group]
    variance = np.bincount(group, weights=centred**2, minlength=len(items)) / size
    lowest, highest = np.full(len(items), np.inf), np.full(len(items), -np.inf)
    np.minimum.at(lowest, group, rewards)
    np.maximum.at(highest, group, rewards)
    flat = highest - lowest <= SPREAD
    advantages = centred / np.sqrt(variance + SPREAD**2)[group] if advantage is Advantage.GRPO else centred

    fits = np.ones(own.num_rows, dtype=bool) if max_tokens is None else np.diff(starts) <= max_tokens
    kept = np.flatnonzero(~flat[group] & fits)
    lengths = np.diff(starts)[kept]
    offsets = offsets_of(lengths)
    places = spans(starts[kept], lengths)
    loss_mask, _ = ragged(own, "loss_mask")
    return Rows(
        token_ids=token_ids[places].astype(np.int64),
        offsets=offsets,
        loss_mask=predicted(loss_mask[places].astype(bool), offsets),
        behaviour=logprobs[places].astype(np.float32),
        advantages=advantages[kept].astype(np.float32),
        temperatures=temperatures[kept],
        counts={
            "groups/zero_spread": float(flat.sum()),
            "rows/too_long": float((~fits).sum()),
            "score/mean": float(rewards.mean()) if len(rewards) else 0.0,
        },
    )


def split_steps(num_rows: int, num_steps: int, seed: int, unit: int = 1) -> list[IntArray]:
    """Row numbers in random order, cut into `num_steps` parts of sizes that differ by at most one unit.

    Args:
        num_rows: How many there are, a multiple of `unit`.
        num_steps: Parts.
        seed: Of the order.
        unit: Rows that stay side by side.
    """
    order = np.random.default_rng(seed).permutation(num_rows // unit)
    return [rows_of(part.astype(np.int64), unit) for part in np.array_split(order, num_steps)]


def rows_of(units: IntArray, unit: int) -> IntArray:
    """The rows of these units, side by side."""
    return (units[:, None] * unit + np.arange(unit)).reshape(-1)


def micro_batches(
    lengths: IntArray, rows: IntArray, row_tokens: int, unit: int = 1, *, overhead: int = BATCH_OVERHEAD
) -> list[IntArray]:
    """Cut `rows` into batches of at most `row_tokens` tokens, padding included, at the least cost.

    Rows are sorted by length, the longest first, so that memory peaks at once or never; where to cut is then a shortest path.
    Rows of unlike length share a batch only where its padding costs less than another batch would. A unit longer than
    `row_tokens` is a batch of its own.

    Args:
        lengths: Tokens of every row there is.
        rows: Which are cut: whole units, side by side.
        row_tokens: Token budget.
        unit: Rows that stay side by side.
        overhead: What a batch costs beside its tokens, in tokens.
    """
    units = rows.reshape(-1, unit)
    longest = lengths[units].max(axis=1)  # [U]
    order = np.lexsort((units[:, 0], -longest))
    price = longest[order] * unit  # of each unit in a batch that begins with this one [U]
    least = np.zeros(len(order) + 1, dtype=np.int64)  # cost of the first n units [U + 1]
    begin = np.zeros(len(order) + 1, dtype=np.int64)  # where the batch begins that ends before unit n [U + 1]
    first = 0  # of those that a batch may begin with: from here on it fits, or is one unit
    for end in range(1, len(order) + 1):
        while first < end - 1 and (end - first) * price[first] > row_tokens:
            first += 1
        starts = np.arange(first, end)
        costs = least[starts] + (end - starts) * price[starts]
        best = int(costs.argmin())
        least[end], begin[end] = costs[best] + overhead, first + best
    batches: list[IntArray] = []
    end = len(order)
    while end:
        batches.append(units[order[begin[end] : end]].reshape(-1))
        end = int(begin[end])
    return batches[::-1]


def pad(rows: Rows, indices: IntArray) -> PaddedRows:
    """The rows `indices` side by side, in that order."""
    lengths = rows.lengths[indices]
    columns = np.arange(int(lengths.max(initial=1)))
    inside = columns[None, :] < lengths[:, None]  # [B, L]
    flat = np.where(inside, rows.offsets[:-1][indices][:, None] + columns[None, :], 0)
    return PaddedRows(
        token_ids=np.where(inside, rows.token_ids[flat], 0),
        flat=flat,
        mask=inside & rows.loss_mask[flat],
    )


def groups(table: pa.Table) -> tuple[IntArray, IntArray, IntArray]:
    """The items [K], the row of each item's first sample [K], and every row's place among the items [R]."""
    items = numbers(table, "item").astype(np.int64)
    unique, group = np.unique(items, return_inverse=True)
    order = np.lexsort((numbers(table, "sample"), group))
    first = order[np.searchsorted(group[order], np.arange(len(unique)))]
    return unique, first.astype(np.int64), group.astype(np.int64)


def numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers [R]."""
    return np.asarray(table.column(name).to_numpy())


def ragged(table: pa.Table, name: str) -> tuple[npt.NDArray[Any], IntArray]:
    """A list column as flat values and the start of each row in them [R + 1]."""
    chunks = table.column(name).chunks
    if not chunks:
        return np.zeros(0, dtype=np.float32), np.zeros(1, dtype=np.int64)
    values = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in chunks])
    lengths = np.concatenate([chunk.value_lengths().to_numpy(zero_copy_only=False) for chunk in chunks])
    return values, offsets_of(lengths.astype(np.int64))


def offsets_of(lengths: IntArray) -> IntArray:
    """Where pieces of these lengths begin when they are laid end to end, and where the last ends [R + 1]."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """The numbers `starts[r] .. starts[r] + lengths[r] - 1` of all r, one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def predicted(loss_mask: BoolArray, offsets: IntArray) -> BoolArray:
    """The mask without each row's first token, which no token comes before."""
    starts = offsets[:-1][np.diff(offsets) > 0]
    loss_mask[starts] = False
    return loss_mask


def hash_units(seed: int, items: IntArray) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each item, a pure function of (seed, item): two rounds of SplitMix64 (Steele et al., 2014)."""
    mixed = _mix(np.uint64(seed % 2**64) ^ _mix(items.astype(np.uint64)))
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mix(values: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    z = np.asarray(values, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
