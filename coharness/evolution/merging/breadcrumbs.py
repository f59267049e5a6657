"""Model breadcrumbs: keep the middle of each change, without its outliers and without its small entries.

Exact by rank as in `ties`: of equal magnitudes those with the lowest index count as the larger ones. Driven through
`merging.RULES`.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.changes import merge_changes
from coharness.evolution.merging.consensus import Election, Trim, elected, keep_all, summed
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import check_number
from coharness.evolution.merging.ties import cut_of, trim_to
from coharness.evolution.merging.walk import Kernel, View


def breadcrumbs(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    density: float = 0.9,
    gamma: float = 0.01,
    elect: bool = False,
    scale: float = 1.0,
    normalize: bool = True,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The sum base + scale * the combination of changes without their extremes (Davari and Belilovsky, 2024).

    Of n entries, int(gamma * n) of the largest are dropped, and of the smallest as many as leave int(density * n); where both
    cannot be, fewer of the largest are dropped.

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One finite weight a parent.
        base: The map all parents were trained from; required.
        density: Share of each tensor's entries that is kept, above 0 to 1; 1 keeps all.
        gamma: Share that is dropped from the top, 0 to 1.
        elect: Combine by the elected mean of TIES instead of the weighted sum.
        scale: Factor on the combined change.
        normalize: Divide the weights by their sum first.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: no base, a setting out of range, maps or weights fail preflight, or the result overflows its dtype.
    """
    check_number("breadcrumbs", "density", density, 0.0, 1.0, above=True)
    check_number("breadcrumbs", "gamma", gamma, 0.0, 1.0)
    check_number("breadcrumbs", "scale", scale)
    return merge_changes(
        "breadcrumbs",
        tensors,
        weights,
        base,
        functools.partial(_prepare, density, gamma, elect, scale),
        idempotent=normalize and density == 1.0 and scale == 1.0,
        chunk_bytes=chunk_bytes,
        normalize=normalize,
    )


def _prepare(density: float, gamma: float, elect: bool, scale: float, view: View) -> Kernel:
    trims = [_trim(density, gamma, view, parent) for parent in range(len(view.parents))]
    return elected(view, trims, Election.WEIGHT, scale) if elect else summed(view, trims, scale)


def _trim(density: float, gamma: float, view: View, parent: int) -> Trim:
    if density == 1.0:
        return keep_all
    kept = int(density * view.numel)
    num_small = max(0, view.numel - kept - int(gamma * view.numel))
    num_outliers = view.numel - num_small - kept
    drop_small = trim_to(cut_of(view, parent, kept + num_outliers), view)
    if num_outliers == 0:
        return drop_small
    outliers = cut_of(view, parent, num_outliers)

    def trim(start: int, delta: Tensor) -> None:
        middle = torch.from_numpy(~outliers.holds(delta.abs().numpy(), start))
        drop_small(start, delta)
        delta.mul_(middle)

    return trim
