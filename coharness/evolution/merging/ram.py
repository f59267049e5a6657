"""RAM: what one parent alone changed is kept whole, what several changed is averaged over those.

Invariants as in `walk`. Driven through `merging.RULES`.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import (
    check_mergeable,
    check_number,
    check_weights,
    normalized,
    require_base,
)
from coharness.evolution.merging.walk import Chunk, Kernel, View, merge_maps


def ram(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    epsilon: float = 1e-5,
    boost: float = 0.0,
    most_overlap: float = 0.2,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The base + what is unique, whole, + what is shared, averaged (Reinforced Agent Merging; arXiv 2601.13572, 2026).

    With `boost` above 0 it is RAM+ within one tensor: a parent's unique entries are multiplied by 1 + boost * min(its shared
    entries over its unique ones, most_overlap), to make up for what averaging takes from it.

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One weight above 0 a parent, for the averages; equal ones are the paper's.
        base: The map all parents were trained from; required.
        epsilon: A change counts where its magnitude is above this, 0 or more.
        boost: r of the paper, 0 or more.
        most_overlap: alpha of the paper, 0 or more.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a setting or weight out of range, maps or weights fail preflight, or the result overflows its dtype.
    """
    base = require_base("ram", base)
    for name, value in (("epsilon", epsilon), ("boost", boost), ("most_overlap", most_overlap)):
        check_number("ram", name, value, 0.0)
    check_weights(weights, len(tensors), normalize=True)
    for i, weight in enumerate(weights):
        check_number("ram", f"weight {i} of", weight, 0.0, above=True)
    check_mergeable(tensors, base=base, values=False)
    return merge_maps(
        tensors,
        normalized(weights),
        base,
        functools.partial(_prepare, epsilon, boost, most_overlap),
        idempotent=epsilon == 0.0,
        chunk_bytes=chunk_bytes,
    )


def _prepare(epsilon: float, boost: float, most_overlap: float, view: View) -> Kernel:
    num_parents = len(view.parents)
    boosts = _boosts(epsilon, boost, most_overlap, view) if boost and most_overlap else [1.0] * num_parents
    deltas = view.scratch(num_parents)
    unique, counts, divisor, part = view.scratch(4)

    def kernel(chunk: Chunk, out: Tensor) -> None:
        n = out.numel()
        _changes(epsilon, chunk, deltas[:, :n], counts[:n], part[:n])
        unique[:n].zero_()
        divisor[:n].zero_()
        out.zero_()
        for delta, weight, factor in zip(deltas[:, :n], view.weights, boosts, strict=True):
            divisor[:n].add_(torch.sign(delta, out=part[:n]).abs_().mul_(weight))
            out.add_(torch.mul(delta, weight, out=part[:n]))
            unique[:n].add_(delta.mul_(factor))
        torch.eq(divisor[:n], 0.0, out=part[:n])
        out.div_(divisor[:n].add_(part[:n]))
        is_unique = torch.eq(counts[:n], 1.0, out=part[:n])
        out.add_(unique[:n].sub_(out).mul_(is_unique)).add_(chunk.origin)

    return kernel


def _changes(epsilon: float, chunk: Chunk, deltas: Tensor, counts: Tensor, part: Tensor) -> None:
    """Fill `deltas` [parents, chunk] with the changes above epsilon, zero elsewhere, and `counts` with how many there are."""
    counts.zero_()
    for delta, parent in zip(deltas, chunk.parents, strict=True):
        torch.sub(parent, chunk.origin, out=delta)
        torch.hardshrink(delta, epsilon, out=delta)
        counts.add_(torch.sign(delta, out=part).abs_())


def _boosts(epsilon: float, boost: float, most_overlap: float, view: View) -> list[float]:
    num_parents = len(view.parents)
    num_unique, num_shared = [0] * num_parents, [0] * num_parents
    deltas = view.scratch(num_parents)
    counts, part = view.scratch(2)
    for chunk in view.chunks():
        n = chunk.origin.numel()
        _changes(epsilon, chunk, deltas[:, :n], counts[:n], part[:n])
        for i, delta in enumerate(deltas[:, :n]):
            mine = counts[:n] * (delta != 0)
            num_unique[i] += int((mine == 1).sum())
            num_shared[i] += int((mine > 1).sum())
    # Without unique entries there is nothing to boost.
    overlaps = [shared / unique if unique else 0.0 for shared, unique in zip(num_shared, num_unique, strict=True)]
    return [1.0 + boost * min(overlap, most_overlap) for overlap in overlaps]
