"""DELLA: drop entries of each change at random, the small ones of a row more often than the large ones, rescale, combine.

Masks are counter-based (`masks`). A row of one entry, in which there is nothing to rank, is kept with the plain density. Driven
through `merging.RULES`.
"""

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coharness.evolution.merging.changes import merge_changes
from coharness.evolution.merging.consensus import Election, Trim, elected, keep_all, summed
from coharness.evolution.merging.dare import Rescale
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.masks import random_words
from coharness.evolution.merging.preflight import check_number
from coharness.evolution.merging.walk import Kernel, View


def della(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    density: float = 0.5,
    epsilon: float = 0.15,
    rescale: Rescale | str = Rescale.INVERSE,
    elect: bool = True,
    scale: float = 1.0,
    seed: int = 0,
    normalize: bool = True,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + scale * the combination of changes thinned by magnitude ranks (Deep, Bhardwaj and Poria, 2024).

    An entry whose magnitude has rank r of n in its row (0 the smallest) is kept with probability
    density - epsilon + 2 * epsilon * r / (n - 1).

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One finite weight a parent.
        base: The map all parents were trained from; required.
        density: Mean probability that an entry is kept, above 0 to 1; 1 keeps all.
        epsilon: Half the range of the probabilities, 0 or more; density - epsilon and density + epsilon stay within 0 to 1.
        rescale: INVERSE divides each entry by its own probability, as the paper does; L1 matches the sum of magnitudes.
        elect: Combine by the elected mean of TIES, as the paper does; False for the weighted sum.
        scale: Factor on the combined change.
        seed: Of the masks.
        normalize: Divide the weights by their sum first.
        chunk_bytes: Bound on the working memory beside inputs and result, and beside one row of each parent.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a setting out of range, maps or weights fail preflight, or the result overflows its dtype.
    """
    check_number("della", "density", density, 0.0, 1.0, above=True)
    check_number("della", "scale", scale)
    if density < 1.0:
        check_number("della", "epsilon", epsilon, 0.0, min(density, 1.0 - density))
    return merge_changes(
        "della",
        tensors,
        weights,
        base,
        functools.partial(_prepare, density, epsilon, Rescale(rescale), elect, scale, seed),
        idempotent=normalize and density == 1.0 and scale == 1.0,
        chunk_bytes=chunk_bytes,
        normalize=normalize,
        by_rows=True,
    )


def keep_probabilities(density: float, epsilon: float, count: int) -> npt.NDArray[np.float64]:
    """The probability of being kept by rank of magnitude, the smallest first [count]."""
    if count == 1:
        return np.array([density])
    return density - epsilon + 2 * epsilon * np.arange(count) / (count - 1)


def _prepare(
    density: float, epsilon: float, rescale: Rescale, elect: bool, scale: float, seed: int, view: View
) -> Kernel:
    size = max(1, view.chunk_numel // view.row_numel) * view.row_numel
    trims: list[Trim] = []
    for rank in range(len(view.parents)):
        if density == 1.0:
            trims.append(keep_all)
            continue
        trim = functools.partial(_drop, density, epsilon, rescale, seed, view, rank)
        if rescale is Rescale.L1:
            trim = functools.partial(_times, _l1_factor(view, rank, trim, size), trim)
        trims.append(trim)
    return elected(view, trims, Election.WEIGHT, scale, size) if elect else summed(view, trims, scale, size)


def _drop(
    density: float, epsilon: float, rescale: Rescale, seed: int, view: View, rank: int, start: int, delta: Tensor
) -> None:
    width = view.row_numel
    rows = delta.numel() // width
    probability = keep_probabilities(density, epsilon, width)  # by rank
    magnitudes = delta.abs().to(torch.float32).numpy().reshape(rows, width)
    # One sort instead of two: magnitude bits above, column below; ties go by column.
    keys = (magnitudes.view(np.uint32).astype(np.uint64) << np.uint64(32)) | np.arange(width, dtype=np.uint64)
    keys.sort(axis=1)
    columns = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)  # [rows, width], by rank
    words = random_words(seed, view.name, rank, start, delta.numel()).reshape(rows, width)
    kept = np.take_along_axis(words, columns, axis=1) < probability * 2.0**32
    factor = kept / np.maximum(probability, 2.0**-64) if rescale is Rescale.INVERSE else kept.astype(np.float64)
    by_column = np.empty((rows, width), dtype=delta.numpy().dtype)
    np.put_along_axis(by_column, columns, factor.astype(by_column.dtype), axis=1)
    delta.mul_(torch.from_numpy(by_column).view(-1))


def _times(factor: float, trim: Trim, start: int, delta: Tensor) -> None:
    trim(start, delta)
    delta.mul_(factor)


def _l1_factor(view: View, parent: int, drop: Trim, size: int) -> float:
    """As `dare.l1_factor`, by rows; each row is summed apart, so that the bits do not depend on how many a chunk holds."""
    whole = left = 0.0
    change = view.scratch(1, size)[0]
    for chunk in view.chunks(size):
        delta = torch.sub(chunk.parents[parent], chunk.origin, out=change[: chunk.origin.numel()])
        sums: list[float] = []
        for _ in range(2):
            by_row = delta.double().abs().view(-1, view.row_numel)
            sums.append(0.0)
            for row in by_row.sum(dim=1).tolist():
                sums[-1] += row
            if len(sums) == 1:
                drop(chunk.start, delta)
        whole, left = whole + sums[0], left + sums[1]
    return whole / left if left > 0 else 1.0
