"""Fisher merging: each entry averaged by how much each parent's loss depends on it.

Invariants as in `walk`; sums in float64, since Fisher information spans more than float32's digits. Driven through
`merging.RULES`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import (
    check_mergeable,
    check_number,
    check_weights,
    normalized,
    refuse_base,
)
from coharness.evolution.merging.walk import Chunk, Kernel, View, merge_maps


def fisher(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    statistics: Sequence[TensorMap] = (),
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """sum_i w_i F_i theta_i / sum_i w_i F_i, entry by entry (Matena and Raffel, 2022).

    Where no parent has any information, the weighted average.

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One weight a parent, 0 or more.
        base: Must be None.
        statistics: A map a parent of the parents' names and shapes: the diagonal of its Fisher information, 0 or more. The second
            moments of an Adam-like optimizer are an estimate that costs nothing.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: a base, no statistics, a negative weight or entry, maps or weights fail preflight, or the result overflows.
    """
    refuse_base("fisher", base)
    check_weights(weights, len(tensors), normalize=True)
    for i, weight in enumerate(weights):
        check_number("fisher", f"weight {i} of", weight, 0.0)
    if len(statistics) == 0:
        raise ValueError(
            "fisher got no statistics; expected the diagonal Fisher information of each map, a map of the same names and shapes "
            "(the second moments of its optimizer will do)"
        )
    check_mergeable(tensors, statistics=statistics, values=False)
    return merge_maps(
        tensors, normalized(weights), None, _prepare, idempotent=True, chunk_bytes=chunk_bytes, extras=statistics
    )


def _prepare(view: View) -> Kernel:
    size = view.chunk_numel
    total, information, part, plain = torch.empty((4, size), dtype=torch.float64)

    def kernel(chunk: Chunk, out: Tensor) -> None:
        n = out.numel()
        for buffer in (total, information, plain):
            buffer[:n].zero_()
        for parent, own, weight in zip(chunk.parents, chunk.extras, view.weights, strict=True):
            if float(own.min()) < 0:
                raise ValueError(
                    f"the statistics of a map hold {float(own.min()):g} in tensor {view.name!r}; expected Fisher information, "
                    f"which is never negative (squared gradients, not gradients)"
                )
            weighted = part[:n].copy_(own).mul_(weight)
            information[:n].add_(weighted)
            total[:n].add_(weighted.mul_(parent))
            plain[:n].add_(part[:n].copy_(parent).mul_(weight))
        known = information[:n] > 0
        out.copy_(torch.where(known, total[:n] / information[:n], plain[:n]))

    return kernel
