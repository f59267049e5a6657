"""Means on the sphere: slerp of two, one-step and iterated means of many, and WARP's return to an anchor.

Each takes whole tensors, or changes from a base where one is given. Members of a population that share a base point almost the
same way, so there only the directions of their changes tell them apart: give the base. Invariants as in `gram`. Driven through
`merging.RULES`.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from coharness.evolution.merging.gram import Coefficients, Matrix, by_gram, cosines, norms
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.preflight import (
    check_mergeable,
    check_number,
    check_weights,
    normalized,
    require_base,
)
from coharness.evolution.merging.walk import merge_maps

_STEPS = 100
_TOLERANCE = 1e-12
"""The iterated mean is taken where the mean of its tangents is no longer than this, in radians."""


def slerp(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    straight_above: float = 0.9995,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """Spherical interpolation of two parents by the angle between whole tensors (Shoemake, 1985).

    Args:
        tensors: Two maps.
        weights: Two weights, 0 or more; the second's share of their sum is how far the result is from the first.
        base: Given, the changes from it are interpolated instead.
        straight_above: Tensors whose cosine is beyond this, in either direction, are interpolated in a straight line.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        The merged map, names sorted, in the parents' shapes and dtypes; no memory is shared with the inputs.

    Raises:
        ValueError: not two maps, a setting or weight out of range, maps or weights fail preflight, or the result overflows.
    """
    if len(tensors) != 2:
        raise ValueError(f"slerp got {len(tensors)} maps; expected two (karcher is its mean of many)")
    check_number("slerp", "straight_above", straight_above, 0.0, 1.0)
    return _on_sphere(
        "slerp", tensors, weights, base, functools.partial(_slerp, straight_above), chunk_bytes, idempotent=True
    )


def multislerp(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """One step towards the mean on the sphere: from the normalised mean direction along the mean tangent (Goddard, 2025).

    The length is the weighted mean of the parents' lengths. Where the directions cancel, the straight mean is taken.

    Args:
        tensors: The parents' maps.
        weights: One weight a parent, 0 or more.
        base: Given, the changes from it are merged instead.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        As `slerp`.

    Raises:
        ValueError: as `slerp`, but for any number of maps.
    """
    return _on_sphere("multislerp", tensors, weights, base, _multislerp, chunk_bytes, idempotent=True)


def karcher(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The weighted mean on the sphere: the direction from which the parents' tangents cancel (Karcher, 1977).

    Its length, arguments and errors are as in `multislerp`.
    """
    return _on_sphere("karcher", tensors, weights, base, _karcher, chunk_bytes, idempotent=True)


def warp(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    towards: float = 0.5,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """Spherical interpolation of the parents' changes, then a straight way back to where they started (Ramé et al., 2024).

    With two parents the changes are interpolated as in `slerp`, with more by the coefficients of `karcher`, whose lengths are
    each parent's own. What is not said here is as in `multislerp`.

    Args:
        tensors: The parents' maps.
        weights: One weight a parent, 0 or more.
        base: The anchor; required.
        towards: Share of the way from the anchor to the interpolation, 0 to 1: eta of the paper.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Raises:
        ValueError: as `multislerp`; or no base.
    """
    base = require_base("warp", base)
    check_number("warp", "towards", towards, 0.0, 1.0)
    find = functools.partial(_warp, towards)
    return _on_sphere("warp", tensors, weights, base, find, chunk_bytes, idempotent=towards == 1.0)


def _on_sphere(
    rule: str,
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None,
    find: Coefficients,
    chunk_bytes: int,
    *,
    idempotent: bool,
) -> dict[str, Tensor]:
    check_weights(weights, len(tensors), normalize=True)
    for i, weight in enumerate(weights):
        check_number(rule, f"weight {i} of", weight, 0.0)
    check_mergeable(tensors, base=base, values=False)
    return merge_maps(tensors, normalized(weights), base, by_gram(find), idempotent=idempotent, chunk_bytes=chunk_bytes)


def _slerp(straight_above: float, inner: Matrix, weights: Sequence[float]) -> Sequence[float]:
    cosine = float(cosines(inner)[0, 1])
    if abs(cosine) > straight_above:
        return weights
    angle = math.acos(cosine)
    return [math.sin(weight * angle) / math.sin(angle) for weight in weights]


def _multislerp(inner: Matrix, weights: Sequence[float]) -> Sequence[float]:
    start = _start(inner, weights)
    if start is None:
        return weights
    cosine, shares = cosines(inner), np.asarray(weights)
    # In coordinates over the unit parents: the weighted mean of u_i - <u_i, m> m.
    tangent = shares - float(shares @ cosine @ start) * start
    return _with_lengths(_step(cosine, start, tangent), inner, weights)


def _karcher(inner: Matrix, weights: Sequence[float]) -> Sequence[float]:
    mean = _mean(inner, weights)
    return weights if mean is None else _with_lengths(mean, inner, weights)


def _warp(towards: float, inner: Matrix, weights: Sequence[float]) -> Sequence[float]:
    mean = _mean(inner, weights)
    return [towards * float(c) for c in (weights if mean is None else mean)]


def _start(inner: Matrix, weights: Sequence[float]) -> Matrix | None:
    """The weighted mean of the unit parents, made a unit, in coordinates over them; None where they cancel."""
    shares = np.where(norms(inner) > 0, np.asarray(weights), 0.0)
    length = math.sqrt(max(float(shares @ cosines(inner) @ shares), 0.0))
    found: Matrix = shares / length if length > 1e-8 else shares
    return found if length > 1e-8 else None


def _mean(inner: Matrix, weights: Sequence[float]) -> Matrix | None:
    """The weighted mean on the sphere in coordinates over the unit parents; None where they cancel."""
    mean = _start(inner, weights)
    if mean is None:
        return None
    cosine = cosines(inner)
    shares = np.where(norms(inner) > 0, np.asarray(weights), 0.0)
    shares = shares / shares.sum()
    for _ in range(_STEPS):
        along = np.clip(cosine @ mean, -1.0, 1.0)
        angles = np.arccos(along)
        # angle / sin(angle) is 1 at 0; at pi there is no shortest way, and the parent is left out.
        sines = np.sin(angles)
        pull = shares * np.where(sines > 1e-9, angles / np.where(sines > 1e-9, sines, 1.0), along > 0)
        tangent = pull - float(pull @ along) * mean
        if float(tangent @ cosine @ tangent) <= _TOLERANCE**2:
            break
        mean = _step(cosine, mean, tangent)
    return mean


def _step(cosine: Matrix, mean: Matrix, tangent: Matrix) -> Matrix:
    """From a unit along a tangent, by its length, on the sphere."""
    length = math.sqrt(max(float(tangent @ cosine @ tangent), 0.0))
    if length == 0.0:
        return mean
    moved: Matrix = math.cos(length) * mean + (math.sin(length) / length) * tangent
    return moved / math.sqrt(float(moved @ cosine @ moved))


def _with_lengths(mean: Matrix, inner: Matrix, weights: Sequence[float]) -> Sequence[float]:
    """Coefficients over the parents themselves of a unit over unit parents, at the weighted mean of their lengths."""
    lengths = norms(inner)
    length = float(np.asarray(weights) @ lengths)
    found = np.divide(mean * length, lengths, out=np.zeros_like(mean), where=lengths > 0)
    return [float(c) for c in found]
