"""Several rows in one sequence, each of which sees itself alone.

Rows are laid end to end into sequences as long as the longest of them; positions begin anew with every row and attention is
block-diagonal, so that a row's log-probabilities are those it has alone. What is left at a sequence's end sees only itself: a
position that may see nothing would be NaN, and poison the gradient of every weight. Driven by `update`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from coharness.policy.rows import BATCH_OVERHEAD, BoolArray, IntArray, Rows, micro_batches, rows_of, spans

PACKED_PRICE: Final = 1.15
"""What a token of a packed batch costs at most, in tokens of a padded one: an explicit mask keeps attention off its fastest path.
Measured 1.0 to 1.15 on the tiny base."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """B rows in S sequences of L tokens."""

    token_ids: IntArray
    "[S, L]"
    positions: IntArray
    "Place of each token in its own row [S, L]."
    segments: IntArray
    "Which row a token belongs to, from 1; 0 where none does [S, L]."
    sequence: IntArray
    "Where each row is [B]."
    start: IntArray
    "[B]"

    def attention(self) -> BoolArray:
        """Whether a query (second to last axis) sees a key (last axis) [S, 1, L, L]."""
        same = self.segments[:, :, None] == self.segments[:, None, :]
        return np.asarray(same & np.tri(self.segments.shape[1], dtype=bool))[:, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """One micro-batch: rows, and how they lie in memory; padded side by side where `packing` is None."""

    indices: IntArray
    packing: Packing | None = None


def cut(
    rows: Rows,
    indices: IntArray,
    row_tokens: int,
    packing: Literal["never", "auto", "always"],
    *,
    overhead: int = BATCH_OVERHEAD,
) -> list[Cut]:
    """Micro-batches of at most `row_tokens` tokens, padding included.

    Args:
        rows: All rows.
        indices: Which are cut: whole units, side by side.
        row_tokens: Token budget.
        packing: `auto` packs where that saves time.
        overhead: What a micro-batch costs beside its tokens, in tokens.
    """
    batches = micro_batches(rows.lengths, indices, row_tokens, rows.unit, overhead=overhead)
    padded = [Cut(indices=batch) for batch in batches]
    if packing == "never" or not len(indices):
        return padded
    packed = _packed(rows, indices, row_tokens)
    if packing == "auto":
        lengths = rows.lengths
        price = sum(len(c.indices) * int(lengths[c.indices].max()) + overhead for c in padded)
        packed_tokens = sum(c.packing.token_ids.size for c in packed if c.packing is not None)
        if PACKED_PRICE * packed_tokens + overhead * len(packed) >= price:
            return padded
    return packed


def pack(rows: Rows, sequences: Sequence[IntArray]) -> Cut:
    """Lay rows end to end, one list of rows a sequence."""
    indices = np.concatenate(sequences)
    lengths = rows.lengths[indices]
    sequence = np.repeat(np.arange(len(sequences)), [len(part) for part in sequences])
    before = np.cumsum(lengths) - lengths
    firsts = np.cumsum([0, *(len(part) for part in sequences[:-1])])
    start = before - before[firsts][sequence]
    width = int((start + lengths).max())
    shape = (len(sequences), width)
    row = np.repeat(np.arange(len(indices)), lengths)
    at = (sequence[row], spans(start, lengths))
    token_ids, positions, segments = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    token_ids[at] = rows.token_ids[spans(rows.offsets[:-1][indices], lengths)]
    positions[at] = spans(np.zeros_like(lengths), lengths)
    segments[at] = row + 1
    packing = Packing(token_ids=token_ids, positions=positions, segments=segments, sequence=sequence, start=start)
    return Cut(indices=indices, packing=packing)


def _packed(rows: Rows, indices: IntArray, row_tokens: int) -> list[Cut]:
    """First fit, the longest first, into sequences as long as the longest unit; then as many sequences a batch as fit."""
    units = indices.reshape(-1, rows.unit)
    lengths = rows.lengths[units].sum(axis=1)
    capacity = int(lengths.max())
    room: list[int] = []
    sequences: list[list[int]] = []
    for place in np.lexsort((units[:, 0], -lengths)):
        size = int(lengths[place])
        fitting = next((n for n, left in enumerate(room) if left >= size), len(room))
        if fitting == len(room):
            room.append(capacity)
            sequences.append([])
        room[fitting] -= size
        sequences[fitting].append(int(units[place, 0]) // rows.unit)
    wide = [rows_of(np.array(sequence, dtype=np.int64), rows.unit) for sequence in sequences]
    per_batch = max(1, row_tokens // max(capacity, 1))
    return [pack(rows, wide[first : first + per_batch]) for first in range(0, len(wide), per_batch)]
