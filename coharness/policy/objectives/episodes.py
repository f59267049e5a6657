"""Episode tables as columns, for objectives that pick and pair single episodes and references.

Invariants: token ids only, nothing is tokenised again; a row is a prefix and what was written after it, exactly as the policy saw
them. `Episodes.of` refuses tables in which that cannot be so: episodes of one group begin with the same prompt, and nothing in a
prompt is learned from. Whatever order rows come in, what is picked depends on (item, sample) alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coharness.policy.rows import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    groups,
    numbers,
    offsets_of,
    predicted,
    ragged,
    spans,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episodes:
    """R episodes of K groups."""

    table: pa.Table
    items: IntArray
    "The group of each name, ascending [K]."
    first: IntArray
    "The first sample of each group [K]."
    group: IntArray
    "Place of each episode's group among the items [R]."
    prompt_lengths: IntArray
    "[R]"
    reference_lengths: IntArray
    "0 where the task has no reference [R]."
    confidence: npt.NDArray[np.float64]
    "Mean behaviour log-probability of what the policy wrote, in nats a token; -inf where it wrote nothing [R]."
    fits: BoolArray
    "Whether prompt and answer are short enough, and the policy wrote something [R]."
    reference_fits: BoolArray
    "Whether there is a reference, and it is short enough with its prompt [R]."
    _token_ids: IntArray
    _loss_mask: BoolArray
    _behaviour: FloatArray
    _starts: IntArray
    _reference_starts: IntArray

    @staticmethod
    def of(own: pa.Table, borrowed: pa.Table | None = None, *, max_tokens: int) -> "Episodes":
        """Read the columns of one or two tables (`EPISODE_SCHEMA`).

        Args:
            own: Episodes of the member.
            borrowed: Episodes of other members.
            max_tokens: Longer rows are not to be learned from.

        Raises:
            ValueError: a score or behaviour log-probability is not finite, a prompt is learned from, or prompts differ inside a
                group.
        """
        table = own if borrowed is None else pa.concat_tables([own, borrowed])
        items, first, group = groups(table)
        token_ids, starts = ragged(table, "token_ids")
        loss_mask, _ = ragged(table, "loss_mask")
        behaviour, _ = ragged(table, "logprobs")
        reference_ids, reference_starts = ragged(table, "reference_ids")
        prompt_lengths = numbers(table, "prompt_length").astype(np.int64)
        mask = loss_mask.astype(bool)
        for name, values in (("score", numbers(table, "score")), ("logprobs", behaviour)):
            if not np.isfinite(values).all():
                raise ValueError(
                    f"episodes hold a non-finite value in {name}; expected finite ones (a failure is no score)"
                )
        _check_prefixes(token_ids, mask, starts, prompt_lengths, first, group, items)
        row = np.repeat(np.arange(table.num_rows), np.diff(starts))
        written = np.bincount(row, weights=mask, minlength=table.num_rows)
        summed = np.bincount(row, weights=np.where(mask, behaviour, 0.0), minlength=table.num_rows)
        lengths, reference_lengths = np.diff(starts), np.diff(reference_starts)
        return Episodes(
            table=table,
            items=items,
            first=first,
            group=group,
            prompt_lengths=prompt_lengths,
            reference_lengths=reference_lengths,
            confidence=np.where(written > 0, summed / np.maximum(written, 1), -np.inf),
            fits=(lengths <= max_tokens) & (written > 0) & (prompt_lengths > 0),
            reference_fits=(reference_lengths > 0)
            & (prompt_lengths + reference_lengths <= max_tokens)
            & (prompt_lengths > 0),
            _token_ids=np.concatenate([token_ids, reference_ids]).astype(np.int64),
            _loss_mask=np.concatenate([mask, np.ones(len(reference_ids), dtype=bool)]),
            _behaviour=np.concatenate([behaviour, np.zeros(len(reference_ids))]).astype(np.float32),
            _starts=starts,
            _reference_starts=reference_starts + len(token_ids),
        )

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers [R]."""
        return numbers(self.table, name).astype(np.float64)

    def check_sampled(self) -> None:
        """Accept episodes that were drawn from a distribution.

        Raises:
            ValueError: a temperature is 0; greedy episodes have no behaviour distribution to correct for.
        """
        if not (self.column("temperature") > 0).all():
            raise ValueError("episodes were decoded at temperature 0; an on-policy objective needs sampled ones")

    def any_in_group(self, chosen: BoolArray) -> BoolArray:
        """Whether a group has a chosen episode: [R] -> [K]."""
        return np.asarray(np.bincount(self.group, weights=chosen, minlength=len(self.items)) > 0)

    def ranked(self, *keys: npt.NDArray[np.float64]) -> IntArray:
        """All episodes, group by group, by these keys inside a group, the first key first; ties by sample [R]."""
        return np.asarray(np.lexsort((self.column("sample"), *reversed(keys), self.group)), dtype=np.int64)

    def place_in_group(self, order: IntArray) -> IntArray:
        """Of each entry of `order`, which goes group by group, its place among those of its group."""
        grouped = self.group[order]
        begins = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])[: len(grouped)])
        lengths = np.diff(np.append(begins, len(grouped)))
        return (np.arange(len(grouped)) - np.repeat(begins, lengths)).astype(np.int64)

    def counts(self) -> dict[str, float]:
        """Metrics that hold whatever is picked."""
        scores = self.column("score")
        return {
            "rows/too_long": float((~self.fits).sum()),
            "score/mean": float(scores.mean()) if len(scores) else 0.0,
        }

    def rows(
        self,
        kept: IntArray,
        advantages: npt.NDArray[np.float64],
        *,
        is_reference: BoolArray | None = None,
        temperatures: npt.NDArray[np.float64] | None = None,
        counts: Mapping[str, float] | None = None,
        unit: int = 1,
    ) -> Rows:
        """Training rows of these episodes, in this order.

        Args:
            kept: Episodes, of which one may stand there more than once [K'].
            advantages: What is said of each [K'].
            is_reference: Whether the task's reference stands in for what the policy wrote [K'].
            temperatures: What logits are divided by; that of decoding where left out [K'].
            counts: Metrics.
            unit: Rows that belong together.
        """
        by_reference = np.zeros(len(kept), dtype=bool) if is_reference is None else is_reference
        whole = np.diff(self._starts)[kept]
        heads = np.where(by_reference, self.prompt_lengths[kept], whole)
        tails = np.where(by_reference, self.reference_lengths[kept], 0)
        offsets = offsets_of(heads + tails)
        source = np.empty(int(offsets[-1]), dtype=np.int64)
        source[spans(offsets[:-1], heads)] = spans(self._starts[kept], heads)
        source[spans(offsets[:-1] + heads, tails)] = spans(self._reference_starts[kept], tails)
        drawn_at = self.column("temperature")[kept] if temperatures is None else temperatures
        return Rows(
            token_ids=self._token_ids[source],
            offsets=offsets,
            loss_mask=predicted(self._loss_mask[source], offsets),
            behaviour=self._behaviour[source],
            advantages=advantages.astype(np.float32),
            temperatures=drawn_at.astype(np.float32),
            counts=dict(counts or {}),
            unit=unit,
        )


def _check_prefixes(
    token_ids: npt.NDArray[np.int32],
    mask: BoolArray,
    starts: IntArray,
    prompt_lengths: IntArray,
    first: IntArray,
    group: IntArray,
    items: IntArray,
) -> None:
    """Exact-prefix check: what an answer is learned after is what the policy saw, token by token."""
    lengths = np.diff(starts)
    inside = np.minimum(prompt_lengths, lengths)
    head = spans(starts[:-1], inside)
    row = np.repeat(np.arange(len(lengths)), inside)
    if mask[head].any():
        bad = int(row[np.flatnonzero(mask[head])[0]])
        raise ValueError(
            f"an episode of item {items[group[bad]]} learns from its own prompt of {prompt_lengths[bad]} tokens; expected a loss "
            "mask that begins after it"
        )
    model = first[group]
    same = inside == inside[model]
    at = np.repeat(same, inside)
    expected = spans(starts[:-1][model][same], inside[same])
    differs = token_ids[head[at]] != token_ids[expected]
    if not same.all() or differs.any():
        bad = int(np.flatnonzero(~same)[0]) if not same.all() else int(row[at][np.flatnonzero(differs)[0]])
        raise ValueError(
            f"episodes of item {items[group[bad]]} begin with different prompts; expected the same token ids in all of a group "
            "(was a prompt tokenised again?)"
        )
