"""SCE: select the entries on which the parents differ most, weigh parents by their energy there, erase minority signs.

Invariants as in `walk`; sums of squares in float64. Driven through `merging.RULES`.
"""

import functools
from collections.abc import Iterator, Sequence

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
from coharness.evolution.merging.selecting import Cut, largest
from coharness.evolution.merging.walk import Chunk, Kernel, View, merge_maps

_SAMPLE_CHUNKS = 16


def sce(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    select: float = 1.0,
    scale: float = 1.0,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + scale * the energy-weighted mean of the selected changes that have the majority's sign (Wan et al., 2024).

    Selected are the `int(select * n)` entries of the largest variance over the parents, n counting those that vary at all. A
    parent's weight in the mean is its mean squared selected change, times its weight here (the paper has none: equal ones).

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One weight a parent, 0 or more.
        base: The map all parents were trained from; required.
        select: Share of the varying entries that is selected, 0 to 1; 1 selects all entries, whether they vary or not.
        scale: Factor on the combined change.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a setting or weight out of range, maps or weights fail preflight, or the result overflows its dtype.
    """
    base = require_base("sce", base)
    check_number("sce", "select", select, 0.0, 1.0)
    check_number("sce", "scale", scale)
    check_weights(weights, len(tensors), normalize=True)
    for i, weight in enumerate(weights):
        check_number("sce", f"weight {i} of", weight, 0.0)
    check_mergeable(tensors, base=base, values=False)
    return merge_maps(
        tensors,
        normalized(weights),
        base,
        functools.partial(_prepare, select, scale),
        idempotent=select == 1.0 and scale == 1.0,
        chunk_bytes=chunk_bytes,
    )


def _prepare(select: float, scale: float, view: View) -> Kernel:
    cut = None if select == 1.0 else _most_varying(view, select)
    energies = _energies(view, cut)
    shares = [weight * energy for weight, energy in zip(view.weights, energies, strict=True)]
    if not any(shares):
        shares = list(view.weights)  # nothing was selected, or nobody moved
    total = sum(shares)
    shares = [share / total for share in shares]
    deltas = view.scratch(len(view.parents))
    votes, share_of, divisor = view.scratch(3)

    def kernel(chunk: Chunk, out: Tensor) -> None:
        n = out.numel()
        selected = _selected(view, cut, chunk, deltas[:, :n])
        sign = torch.sum(selected, dim=0, out=votes[:n]).sign_()
        out.zero_()
        divisor[:n].zero_()
        for delta, share in zip(selected, shares, strict=True):
            winners = torch.clamp_min(delta.mul_(sign), 0.0, out=delta)
            divisor[:n].add_(torch.sign(winners, out=share_of[:n]).mul_(share))
            out.add_(winners.mul_(share))
        torch.eq(divisor[:n], 0.0, out=share_of[:n])
        out.div_(divisor[:n].add_(share_of[:n])).mul_(sign).mul_(scale).add_(chunk.origin)

    return kernel


def _selected(view: View, cut: Cut | None, chunk: Chunk, out: Tensor) -> Tensor:
    """The parents' changes [parents, chunk], zero where they are not selected."""
    for i, parent in enumerate(chunk.parents):
        torch.sub(parent, chunk.origin, out=out[i])
    if cut is not None:
        held = cut.holds(_variance(out).numpy(), chunk.start)
        out.mul_(torch.from_numpy(held))
    return out


def _variance(deltas: Tensor) -> Tensor:
    return torch.var(deltas, dim=0, correction=0)


def _variances(view: View, size: int | None = None) -> Iterator[Tensor]:
    deltas = view.scratch(len(view.parents), size)
    for chunk in view.chunks(size):
        n = chunk.origin.numel()
        for i, parent in enumerate(chunk.parents):
            torch.sub(parent, chunk.origin, out=deltas[i, :n])
        yield _variance(deltas[:, :n])


def _most_varying(view: View, select: float) -> Cut:
    num_varying = sum(int(torch.count_nonzero(values)) for values in _variances(view))
    sample = []
    stride = max(1, view.numel // (_SAMPLE_CHUNKS * view.chunk_numel))
    for index, values in enumerate(_variances(view)):
        if index % stride == 0:
            sample.append(values[::_SAMPLE_CHUNKS].clone())
    capacity = view.chunk_bytes // (2 * view.dtype.itemsize)
    return largest(
        functools.partial(_variances, view), view.numel, int(select * num_varying), torch.cat(sample), capacity
    )


def _energies(view: View, cut: Cut | None) -> list[float]:
    """Sums of squares of the parents' selected changes."""
    sums = [0.0] * len(view.parents)
    deltas = view.scratch(len(view.parents), 2**14)
    for block in view.blocks():
        selected = _selected(view, cut, block, deltas[:, : block.origin.numel()])
        for i, delta in enumerate(selected):
            sums[i] += float(delta.double().square().sum())
    return sums
