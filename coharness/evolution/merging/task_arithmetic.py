"""Task arithmetic: the base plus a scaled, weighted sum of what each parent changed.

Invariants: bit-equal under any permutation of (maps, weights); deltas are taken and summed in float32 (float64 for float64 and
scalars), cast back once; a tensor no parent changed comes through equal to the base's. Driven through `merging.RULES`.
"""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap, merge_elementwise
from coharness.evolution.merging.preflight import check_mergeable, check_weights, normalized


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
    if base is None:
        raise ValueError(
            "task_arithmetic got no base; expected the map the parents were trained from (or use the linear rule)"
        )
    if not math.isfinite(scale):
        raise ValueError(
            f"task_arithmetic got scale {scale}; expected a finite number, 1.0 for the plain weighted change"
        )
    check_weights(weights, len(tensors), normalize=normalize)
    check_mergeable(tensors, base=base)
    coefficients = normalized(weights) if normalize else list(weights)
    return merge_elementwise(
        tensors,
        coefficients,
        base,
        functools.partial(_base_plus_deltas, scale),
        idempotent=normalize and scale == 1.0,
        chunk_bytes=chunk_bytes,
    )


def _base_plus_deltas(scale: float, parents: Sequence[Tensor], weights: Sequence[float], base: Tensor | None) -> Tensor:
    assert base is not None
    total = torch.zeros_like(base)  # [chunk]
    scratch = torch.empty_like(base)
    for parent, weight in zip(parents, weights, strict=True):
        # Separate roundings, for the reason given in the linear rule.
        torch.sub(parent, base, out=scratch)
        total.add_(scratch.mul_(weight))
    return total.mul_(scale).add_(base)
