"""RegMean: for each linear layer, the weights whose outputs are closest to all parents' outputs on their own inputs.

Inner products of inputs are taken where the data are, one [in, in] matrix a layer; the merge is one small solve in float64 for
each.
Invariants: bit-equal under any permutation of the parents; tensors without such a matrix are averaged. Driven through
`merging.RULES`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from coharness.evolution.merging.linear import linear
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap, all_finite, canonical_order, flat
from coharness.evolution.merging.preflight import (
    check_finite,
    check_mergeable,
    check_number,
    check_weights,
    normalized,
    refuse_base,
)

_DEAD_RELATIVE = 1e-12
"""Directions of the inputs below this share of the strongest were never seen: nothing tells the parents apart there."""


def regmean(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    statistics: Sequence[TensorMap] = (),
    shrink: float = 0.9,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """(sum_i w_i W_i G_i) (sum_i w_i G_i)^-1 for each [out, in] weight W_i with G_i = X_i^T X_i (Jin et al., 2023).

    In directions that no input has, and for tensors without a matrix, the weighted average.

    Args:
        tensors: The parents' maps, of one architecture and dtype.
        weights: One weight above 0 a parent.
        base: Must be None.
        statistics: A map a parent: the name of a layer's weight -> G_i [in, in], the same names for all parents.
        shrink: Factor on the off-diagonal entries of every G_i, 0 to 1; 1 is the plain least-squares answer.
        chunk_bytes: Bound on the working memory of what is averaged; a solve holds a few [in, in] and [out, in] matrices.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: a base, no statistics or misshapen ones, a setting out of range, maps or weights fail preflight.
    """
    refuse_base("regmean", base)
    check_number("regmean", "shrink", shrink, 0.0, 1.0)
    check_weights(weights, len(tensors), normalize=True)
    for i, weight in enumerate(weights):
        check_number("regmean", f"weight {i} of", weight, 0.0, above=True)
    check_mergeable(tensors, values=False)
    solved = _check_statistics(tensors, statistics)
    shares = normalized(weights)
    rest = [{name: m[name] for name in m if name not in solved} for m in tensors]
    merged = linear(rest, weights, chunk_bytes=chunk_bytes)
    for name in solved:
        merged[name] = _solve(name, [m[name] for m in tensors], [s[name] for s in statistics], shares, shrink)
    return dict(sorted(merged.items()))


def _solve(
    name: str, parents: Sequence[Tensor], inner: Sequence[Tensor], weights: Sequence[float], shrink: float
) -> Tensor:
    order = canonical_order([[flat(w), flat(g)] for w, g in zip(parents, inner, strict=True)], weights)
    wide = [parents[i].detach().double() for i in order]
    shrunk = [weights[i] * _shrunk(inner[i].detach().double(), shrink) for i in order]
    average = sum((weights[i] * w for i, w in zip(order, wide, strict=True)), torch.zeros_like(wide[0]))
    # Around the average, so that directions without inputs stay there.
    pulls = sum(((w - average) @ g for w, g in zip(wide, shrunk, strict=True)), torch.zeros_like(average))
    total = sum(shrunk, torch.zeros_like(shrunk[0]))
    values, vectors = torch.linalg.eigh((total + total.T) / 2)
    alive = values > _DEAD_RELATIVE * values.abs().max()
    inverse = torch.where(alive, 1.0 / torch.where(alive, values, 1.0), 0.0)
    found: Tensor = (average + ((pulls @ vectors) * inverse) @ vectors.T).to(parents[0].dtype)
    if not all_finite(found):
        raise ValueError(
            f"tensor {name!r}: the merged values do not fit {found.dtype}; expected statistics of sane size"
        )
    return found


def _shrunk(inner: Tensor, shrink: float) -> Tensor:
    diagonal = torch.diag_embed(torch.diagonal(inner))
    shrunk: Tensor = diagonal + (inner - diagonal) * shrink
    return shrunk


def _check_statistics(tensors: Sequence[TensorMap], statistics: Sequence[TensorMap]) -> list[str]:
    """The names that have inner products, sorted."""
    if len(statistics) != len(tensors):
        raise ValueError(
            f"regmean got statistics of {len(statistics)} maps for {len(tensors)} maps; expected for each map the inner products "
            f"X^T X of its layers' inputs, by the name of the layer's weight"
        )
    names = sorted(statistics[0])
    for i, own in enumerate(statistics):
        if differing := sorted(set(own) ^ set(names)):
            raise ValueError(
                f"the statistics of map {i} and of map 0 differ in {differing[0]!r}; expected the same names"
            )
        for name in names:
            if name not in tensors[0] or tensors[0][name].dim() != 2:
                raise ValueError(f"the statistics of map {i} name {name!r}; expected the name of a weight [out, in]")
            width = tensors[0][name].shape[1]
            if tuple(own[name].shape) != (width, width):
                raise ValueError(
                    f"the statistics of map {i} for {name!r} have shape {list(own[name].shape)}; expected {[width, width]}"
                )
            check_finite(name, f"the statistics of map {i}", own[name])
            check_finite(name, f"map {i}", tensors[i][name])
    return names
