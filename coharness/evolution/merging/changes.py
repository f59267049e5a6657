"""Merging by changes from a base: the checks that such rules share, and then the walk.

A rule checks its own settings and says how one tensor is combined; base, weights and maps are checked here. Driven by the rules.
"""

from collections.abc import Sequence

from torch import Tensor

from coharness.evolution.merging.maps import TensorMap
from coharness.evolution.merging.preflight import check_mergeable, check_weights, normalized, require_base
from coharness.evolution.merging.walk import Prepare, merge_maps


def merge_changes(
    rule: str,
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None,
    prepare: Prepare,
    *,
    idempotent: bool,
    chunk_bytes: int,
    normalize: bool = True,
    total: float = 1.0,
    by_rows: bool = False,
    propagates: bool = False,
) -> dict[str, Tensor]:
    """The maps merged by a rule that needs a base.

    Args:
        rule: Its name, for messages.
        tensors: The parents' maps.
        weights: One finite weight a parent.
        base: The map all parents were trained from.
        prepare: As in `walk.merge_maps`, as are `idempotent`, `chunk_bytes`, `by_rows` and `propagates`.
        idempotent: Whether equal parents make their like.
        chunk_bytes: Bound on the working memory.
        normalize: Whether the weights are made to sum to `total`.
        total: What normalised weights sum to.
        by_rows: Whether chunks hold whole rows.
        propagates: Whether what is not finite in a parent shows in the result.

    Raises:
        ValueError: no base, maps or weights fail preflight, or the result overflows its dtype.
    """
    base = require_base(rule, base)
    check_weights(weights, len(tensors), normalize=normalize)
    check_mergeable(tensors, base=base, values=False)
    return merge_maps(
        tensors,
        [total * weight for weight in normalized(weights)] if normalize else list(weights),
        base,
        prepare,
        idempotent=idempotent,
        chunk_bytes=chunk_bytes,
        by_rows=by_rows,
        propagates=propagates,
    )
