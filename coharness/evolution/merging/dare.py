"""DARE: drop entries of each change at random, rescale what is left, combine.

Masks are counter-based (`masks`): the same whatever the chunks, and the same for the same parents in any order. Driven through
`merging.RULES`, where both published rescalings have a name.
"""

import functools
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from coharness.evolution.merging.changes import merge_changes
from coharness.evolution.merging.consensus import Election, Trim, elected, keep_all, summed
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.masks import random_words, word_threshold
from coharness.evolution.merging.preflight import check_number
from coharness.evolution.merging.walk import Kernel, View


class Rescale(StrEnum):
    """How what was kept makes up for what was dropped."""

    INVERSE = "inverse"
    "Divide by the probability of being kept: the mean over masks is the change itself (Yu et al., 2024)."
    L1 = "l1"
    "Multiply so that the sum of magnitudes over the tensor is that of the whole change."
    NONE = "none"
    "Do not."


def dare(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    density: float = 0.5,
    rescale: Rescale | str = Rescale.INVERSE,
    elect: bool = False,
    scale: float = 1.0,
    seed: int = 0,
    normalize: bool = True,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + scale * the combination of randomly thinned changes (Yu et al., 2024).

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One finite weight a parent.
        base: The map all parents were trained from; required.
        density: Probability that an entry is kept, above 0 to 1.
        rescale: See `Rescale`.
        elect: Combine by the elected mean of TIES instead of the weighted sum.
        scale: Factor on the combined change.
        seed: Of the masks.
        normalize: Divide the weights by their sum first.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a setting out of range, maps or weights fail preflight, or the result overflows its dtype.
    """
    check_number("dare", "density", density, 0.0, 1.0, above=True)
    check_number("dare", "scale", scale)
    return merge_changes(
        "dare",
        tensors,
        weights,
        base,
        functools.partial(_prepare, density, Rescale(rescale), elect, scale, seed),
        idempotent=normalize and density == 1.0 and scale == 1.0,
        chunk_bytes=chunk_bytes,
        normalize=normalize,
    )


def l1_factor(view: View, parent: int, drop: Trim) -> float:
    """The sum of magnitudes of one parent's change over that of what `drop` leaves of it; 1 where nothing is left."""
    whole = left = 0.0
    change = view.scratch(1, 2**14)[0]
    for block in view.blocks():
        delta = torch.sub(block.parents[parent], block.origin, out=change[: block.origin.numel()])
        whole += float(delta.double().abs().sum())
        drop(block.start, delta)
        left += float(delta.double().abs().sum())
    return whole / left if left > 0 else 1.0


def _prepare(density: float, rescale: Rescale, elect: bool, scale: float, seed: int, view: View) -> Kernel:
    trims = [_trim(density, rescale, seed, view, rank) for rank in range(len(view.parents))]
    return elected(view, trims, Election.WEIGHT, scale) if elect else summed(view, trims, scale)


def _trim(density: float, rescale: Rescale, seed: int, view: View, rank: int) -> Trim:
    threshold = word_threshold(density)
    if threshold == 1 << 32:
        return keep_all
    kept = np.empty(max(view.chunk_numel, 2**14), dtype=np.float64 if view.dtype == torch.float64 else np.float32)

    def drop(start: int, delta: Tensor) -> None:
        count = delta.numel()
        words = random_words(seed, view.name, rank, start, count)
        np.copyto(kept[:count], words < threshold)
        delta.mul_(torch.from_numpy(kept[:count]))

    match rescale:
        case Rescale.NONE:
            return drop
        case Rescale.INVERSE:
            factor = 1.0 / density
        case Rescale.L1:
            factor = l1_factor(view, rank, drop)

    def drop_and_rescale(start: int, delta: Tensor) -> None:
        drop(start, delta)
        delta.mul_(factor)

    return drop_and_rescale
