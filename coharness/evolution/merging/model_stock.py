"""Model stock: as far from the base to the parents' mean as the angles between their changes say.

Invariants as in `gram`. Driven through `merging.RULES`.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from coharness.evolution.merging.changes import merge_changes
from coharness.evolution.merging.gram import Matrix, by_gram, cosines
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap

_SINGULAR = 1e-6


def model_stock(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + t * (mean - base), t = N c / (1 + (N - 1) c), c the mean cosine between changes (Jang et al., 2024).

    The more the parents agree, the closer to their mean: c = 1 is the mean, c = 0 the base. Where 1 + (N - 1) c vanishes, the
    changes cancel and the base is kept.

    Args:
        tensors: At least two maps.
        weights: One finite weight a parent, of the mean; equal ones are the paper's.
        base: The map all parents were trained from; required.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: fewer than two maps, no base, maps or weights fail preflight, or the result overflows its dtype.
    """
    if len(tensors) < 2:
        raise ValueError(f"model_stock got {len(tensors)} maps; expected at least two, between which there is an angle")
    return merge_changes(
        "model_stock", tensors, weights, base, by_gram(_coefficients), idempotent=True, chunk_bytes=chunk_bytes
    )


def _coefficients(inner: Matrix, weights: Sequence[float]) -> Sequence[float]:
    count = len(weights)
    mean_cosine = float(cosines(inner)[np.triu_indices(count, k=1)].mean())
    divisor = 1.0 + (count - 1) * mean_cosine
    ratio = count * mean_cosine / divisor if abs(divisor) > _SINGULAR else 0.0
    return [ratio * weight for weight in weights]
