"""TIES: trim each change to its largest entries, elect a sign for every coordinate, average those that have it.

The trimming is exact: ceil-free `int(density * numel)` entries, at least one, and of equal magnitudes those with the lowest
index. Driven through `merging.RULES`, where both published definitions of the election have a name.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.changes import merge_changes
from coharness.evolution.merging.consensus import Election, Trim, elected, keep_all
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import check_number
from coharness.evolution.merging.selecting import Cut, as_lambda, largest, sample_of
from coharness.evolution.merging.walk import Kernel, View


def ties(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    density: float = 0.2,
    election: Election | str = Election.WEIGHT,
    scale: float = 1.0,
    normalize: bool = True,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + scale * the elected mean of the parents' largest changes (TIES-Merging; Yadav et al., 2023).

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One finite weight a parent.
        base: The map all parents were trained from; required.
        density: Share of each tensor's entries that is kept, above 0 to 1; the paper keeps .2.
        election: See `consensus.Election`.
        scale: The lambda of the paper.
        normalize: Divide the weights by their sum first (by their mean where the election is COUNT).
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a setting out of range, maps or weights fail preflight, or the result overflows its dtype.
    """
    check_number("ties", "density", density, 0.0, 1.0, above=True)
    check_number("ties", "scale", scale)
    chosen = Election(election)
    return merge_changes(
        "ties",
        tensors,
        weights,
        base,
        functools.partial(_prepare, density, chosen, scale),
        idempotent=normalize and density == 1.0 and scale == 1.0,
        chunk_bytes=chunk_bytes,
        normalize=normalize,
        # An election that divides by a count wants weights with a mean of one.
        total=len(weights) if chosen is Election.COUNT else 1.0,
    )


def cut_of(view: View, parent: int, count: int) -> Cut:
    """The cut that holds the `count` largest entries of one parent's change, by magnitude."""
    assert view.base is not None
    mine = sample_of(view.parents[parent]).to(view.dtype)
    sample = mine.sub(sample_of(view.base).to(view.dtype)).abs_()
    capacity = view.chunk_bytes // (2 * view.dtype.itemsize)
    return largest(functools.partial(view.magnitudes, parent), view.numel, count, sample, capacity)


def trim_to(cut: Cut, view: View) -> Trim:
    """The trim that keeps what a cut holds."""
    below = as_lambda(cut, view.dtype)

    def trim(start: int, delta: Tensor) -> None:
        # Shrinking keeps what is beyond its bound; only the chunk with the last of the equal ones needs to look at indices.
        if cut.whole or start + delta.numel() <= cut.last + 1:
            torch.hardshrink(delta, below, out=delta)
        elif start > cut.last:
            torch.hardshrink(delta, cut.value, out=delta)
        else:
            delta.mul_(torch.from_numpy(cut.holds(delta.abs().numpy(), start)))

    return trim


def _prepare(density: float, election: Election, scale: float, view: View) -> Kernel:
    count = max(1, int(density * view.numel))
    trims = [
        keep_all if density == 1.0 else trim_to(cut_of(view, parent, count), view)
        for parent in range(len(view.parents))
    ]
    return elected(view, trims, election, scale)
