"""Task arithmetic and extrapolation: the base plus a scaled, weighted sum of what each parent changed.

Invariants: bit-equal under any permutation of (maps, weights); deltas are taken and summed in float32 (float64 for float64 and
scalars), cast back once; a tensor no parent changed comes through equal to the base's. Driven through `merging.RULES`.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.changes import merge_changes
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import check_number, require_base
from coharness.evolution.merging.walk import Chunk, Kernel, View


def task_arithmetic(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    scale: float = 1.0,
    normalize: bool = True,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + scale * sum_i w_i (theta_i - base), with w summing to one unless `normalize=False`.

    Source: Ilharco et al., 2023.

    With normalised weights and scale 1 this is `linear`; a larger scale extrapolates along the average change.

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One finite weight a parent, negative ones allowed (forgetting).
        base: The map all parents were trained from; required.
        scale: The lambda of the paper, finite.
        normalize: Divide the weights by their sum first.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a non-finite scale, maps or weights fail preflight, or the result overflows its dtype.
    """
    check_number("task_arithmetic", "scale", scale)
    return merge_changes(
        "task_arithmetic",
        tensors,
        weights,
        base,
        functools.partial(_base_plus_deltas, scale),
        idempotent=normalize and scale == 1.0,
        chunk_bytes=chunk_bytes,
        normalize=normalize,
        propagates=True,
    )


def extrapolation(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    step: float = 0.5,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The weighted mean of the parents, and beyond it: base + (1 + step) * (sum_i w_i theta_i - base).

    Source: Zheng et al., 2024 (ExPO), where one aligned model takes the place of the mean.

    Args:
        tensors: The parents' maps.
        weights: As in `task_arithmetic`, always normalised.
        base: The map all parents were trained from; required.
        step: How far beyond the mean, as a share of the way from the base to it; 0 is the mean, -1 the base.
        chunk_bytes: As in `task_arithmetic`.

    Returns:
        As `task_arithmetic`.

    Raises:
        ValueError: as `task_arithmetic`.
    """
    base = require_base("extrapolation", base)
    check_number("extrapolation", "step", step)
    return task_arithmetic(tensors, weights, base, scale=1.0 + step, chunk_bytes=chunk_bytes)


def _base_plus_deltas(scale: float, view: View) -> Kernel:
    scratch = view.scratch(1)[0]

    def kernel(chunk: Chunk, out: Tensor) -> None:
        part = scratch[: out.numel()]
        torch.sub(chunk.parents[0], chunk.origin, out=out).mul_(view.weights[0])
        for parent, weight in zip(chunk.parents[1:], view.weights[1:], strict=True):
            # Separate roundings, for the reason given in the linear rule.
            torch.sub(parent, chunk.origin, out=part)
            out.add_(part.mul_(weight))
        if scale != 1.0:
            out.mul_(scale)
        out.add_(chunk.origin)

    return kernel
