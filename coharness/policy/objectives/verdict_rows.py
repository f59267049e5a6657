"""What a judge's objectives learn from and read: rows that end in a verdict, and the scalar in a verdict's probability.

The read-out needs no head: r = log p - log(1 - p), the log-odds of the verdict token against everything else the policy could
write there. So p is a score in (0, 1), r is a real number, and one token of one row carries both. Rows come from tables of
`EPISODE_SCHEMA` whose `score` is the target in [0, 1]; the two episodes of a pair share an item and differ in their prompts.
Driven by the objectives `bradley_terry`, `score_regression` and `critique`.
"""

import math
from typing import Final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from coharness.policy.rows import IntArray, Rows, groups, numbers, offsets_of, predicted, ragged, spans

CERTAIN: Final = -1e-6
"""Largest log-probability that is told from 0; beyond it the log-odds, about 14, have no gradient."""


def readout(logprobs: Tensor, mask: Tensor) -> Tensor:
    """Log-odds of each row's one learned token against all others: two [B, T] -> [B]."""
    # where, not a product: a masked position may hold anything.
    logp = torch.where(mask, logprobs, logprobs.new_zeros(())).sum(-1).clamp(max=CERTAIN)
    # log(1 - e^x), by the form that loses no digits (Maechler, 2012); both are finite below CERTAIN, and so are their gradients.
    rest = torch.where(logp > -math.log(2), torch.log(-torch.expm1(logp)), torch.log1p(-logp.exp()))
    return logp - rest


def verdict_rows(own: pa.Table, *, max_tokens: int) -> Rows:
    """Every episode as a row by itself; its advantage is its score.

    Args:
        own: Episodes [`EPISODE_SCHEMA`].
        max_tokens: Longer rows are dropped and counted.

    Raises:
        ValueError: a score is not in [0, 1].
    """
    fits = _lengths(own) <= max_tokens
    return _rows(own, np.flatnonzero(fits).astype(np.int64), {"rows/too_long": float((~fits).sum())}, unit=1)


def verdict_pairs(own: pa.Table, *, max_tokens: int) -> Rows:
    """The two episodes of each item side by side, the one with the higher score first.

    Args:
        own: Episodes, two an item [`EPISODE_SCHEMA`].
        max_tokens: A pair with a longer row is dropped and counted.

    Raises:
        ValueError: an item has another number of episodes than two, or a score is not in [0, 1].
    """
    items, _, group = groups(own)
    sizes = np.bincount(group, minlength=len(items))
    if (wrong := sizes != 2).any():
        bad = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"item {items[bad]} has {sizes[bad]} episodes, expected the two of a pair")
    order = np.lexsort((numbers(own, "sample"), -numbers(own, "score"), group)).astype(np.int64)
    fits = (_lengths(own)[order] <= max_tokens).reshape(-1, 2).all(axis=1)
    kept = order.reshape(-1, 2)[fits].reshape(-1)
    return _rows(own, kept, {"rows/too_long": float(2 * (~fits).sum())}, unit=2)


def check_one_verdict(rows: Rows) -> Rows:
    """The rows, where each learns from exactly one token.

    Raises:
        ValueError: one learns from none or several, so that it has no read-out.
    """
    wrong = rows.trained_lengths != 1
    if wrong.any():
        raise ValueError(
            f"a row learns from {int(rows.trained_lengths[wrong][0])} tokens, expected its verdict's one token alone"
        )
    return rows


def _lengths(table: pa.Table) -> IntArray:
    return np.diff(ragged(table, "token_ids")[1])


def _rows(table: pa.Table, kept: IntArray, counts: dict[str, float], *, unit: int) -> Rows:
    scores = numbers(table, "score").astype(np.float64)
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("an episode's score is outside [0, 1] or not finite; expected the target of a verdict")
    token_ids, starts = ragged(table, "token_ids")
    mask, _ = ragged(table, "loss_mask")
    lengths = np.diff(starts)[kept]
    offsets = offsets_of(lengths)
    places = spans(starts[:-1][kept], lengths)
    return Rows(
        token_ids=token_ids[places].astype(np.int64),
        offsets=offsets,
        loss_mask=predicted(mask[places].astype(bool), offsets),
        behaviour=np.zeros(int(offsets[-1]), dtype=np.float32),
        advantages=scores[kept].astype(np.float32),
        temperatures=np.ones(len(kept), dtype=np.float32),
        counts=counts,
        unit=unit,
    )
