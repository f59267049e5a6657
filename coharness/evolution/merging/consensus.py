"""From trimmed changes to one: the weighted sum, and the two published ways of agreeing on a sign first.

A `Trim` zeroes what a rule drops of one parent's change. What is left is combined coordinate by coordinate, and added to the
base:

    summed           base + scale * sum_i w_i d_i
    elected, WEIGHT  the sign of sum_i w_i d_i; then sum w_i d_i / sum |w_i| over the parents that have that sign
    elected, COUNT   the sign of sum_i d_i; then sum w_i d_i / number of the parents that have that sign

The election is that of TIES (Yadav et al., 2023), which has no weights: with equal ones WEIGHT is its disjoint mean. COUNT is how
weights came in elsewhere (PEFT); divided by a count, weights that sum to one shrink the change, so the rules normalise them to
a mean of one there. A coordinate on which the vote is a draw keeps the base.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

import torch
from torch import Tensor

from coharness.evolution.merging.walk import Chunk, Kernel, View

Trim: TypeAlias = Callable[[int, Tensor], None]
"""(start, delta): zero in place what is dropped of a chunk [n] of one parent's change, and rescale what is kept."""


class Election(StrEnum):
    """How signs are elected and what the sum of the winners is divided by."""

    WEIGHT = "weight"
    "The sign of the weighted sum; divided by the sum of |weight| that has that sign."
    COUNT = "count"
    "The sign of the plain sum; divided by the number of parents that have that sign."


def summed(view: View, trims: Sequence[Trim], scale: float, size: int | None = None) -> Kernel:
    """A kernel for base + scale * sum_i w_i trim_i(theta_i - base); `size` is the most elements of a chunk."""
    scratch = view.scratch(1, size)[0]

    def kernel(chunk: Chunk, out: Tensor) -> None:
        part = scratch[: out.numel()]
        out.zero_()
        for parent, weight, trim in zip(chunk.parents, view.weights, trims, strict=True):
            torch.sub(parent, chunk.origin, out=part)
            trim(chunk.start, part)
            out.add_(part.mul_(weight))
        if scale != 1.0:
            out.mul_(scale)
        out.add_(chunk.origin)

    return kernel


def elected(view: View, trims: Sequence[Trim], election: Election, scale: float, size: int | None = None) -> Kernel:
    """A kernel for base + scale * (the elected mean of the trimmed changes); `size` as for `summed`."""
    count = len(view.parents)
    deltas, (sign, share, divisor) = view.scratch(count, size), view.scratch(3, size)

    def kernel(chunk: Chunk, out: Tensor) -> None:
        n = out.numel()
        votes = sign[:n].zero_()
        for i, (parent, weight, trim) in enumerate(zip(chunk.parents, view.weights, trims, strict=True)):
            delta = torch.sub(parent, chunk.origin, out=deltas[i, :n])
            trim(chunk.start, delta)
            if election is Election.WEIGHT:
                votes.add_(delta.mul_(weight))
            else:
                votes.add_(delta)
        torch.sign(votes, out=votes)
        out.zero_()
        divisor[:n].zero_()
        for i, weight in enumerate(view.weights):
            # Turned so that the winning sign is +, a change counts where it is positive.
            winners = torch.clamp_min(deltas[i, :n].mul_(votes), 0.0, out=deltas[i, :n])
            torch.sign(winners, out=share[:n])
            if election is Election.WEIGHT:
                out.add_(winners)
                divisor[:n].add_(share[:n].mul_(abs(weight)))
            else:
                out.add_(winners.mul_(weight))
                divisor[:n].add_(share[:n])
        # Where nobody won the sum is zero, and any divisor will do.
        torch.eq(divisor[:n], 0.0, out=share[:n])
        out.div_(divisor[:n].add_(share[:n])).mul_(votes).mul_(scale).add_(chunk.origin)

    return kernel


def keep_all(start: int, delta: Tensor) -> None:
    """The trim that drops nothing."""
