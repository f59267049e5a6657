"""The linear rule and the plain soup: weighted averages of weights, elementwise.

Invariants: bit-equal under any permutation of (maps, weights); sums in float32 (float64 for float64 and scalars), cast back once;
tensors on which all parents agree come through unchanged when the weights are normalised. Driven through `merging.RULES`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import check_mergeable, check_weights, normalized, refuse_base
from coharness.evolution.merging.walk import Chunk, Kernel, View, merge_maps


def linear(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    normalize: bool = True,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """sum_i w_i theta_i, with w summing to one unless `normalize=False` (model soups; Wortsman et al., 2022).

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One finite weight a parent, negative ones allowed (extrapolation).
        base: Must be None; an average takes no base.
        normalize: Divide the weights by their sum first.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the parents.

    Raises:
        ValueError: a base was given, maps or weights fail preflight, or the result overflows its dtype.
    """
    refuse_base("linear", base)
    check_weights(weights, len(tensors), normalize=normalize)
    check_mergeable(tensors, values=False)
    coefficients = normalized(weights) if normalize else list(weights)
    return merge_maps(
        tensors, coefficients, None, weighted_sum, idempotent=normalize, chunk_bytes=chunk_bytes, propagates=True
    )


def weighted_sum(view: View) -> Kernel:
    """A kernel for sum_i w_i theta_i with the view's weights."""
    scratch = view.scratch(1)[0]

    def kernel(chunk: Chunk, out: Tensor) -> None:
        part = scratch[: out.numel()]
        torch.mul(chunk.parents[0], view.weights[0], out=out)
        for parent, weight in zip(chunk.parents[1:], view.weights[1:], strict=True):
            # Two roundings on purpose: whether add(alpha=...) is fused depends on torch's build and the processor, and the
            # bits of a merge should not.
            torch.mul(parent, weight, out=part)
            out.add_(part)

    return kernel
