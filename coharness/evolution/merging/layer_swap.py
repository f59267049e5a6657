"""Layer swap: each layer comes whole from one parent, drawn by weight.

Invariants: a layer's draw depends on (seed, layer) and on that layer's parents alone, so any order of the parents, and merging
layer by layer, give the same bits; nothing is rounded, since nothing is computed. Driven through `merging.RULES`.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap, canonical_order, flat
from coharness.evolution.merging.preflight import check_mergeable, check_number, check_weights, normalized, refuse_base

_LAYER: Final = re.compile(r"^(.*?\.?\b(?:layers|layer|h|blocks|block)\.\d+)\.")


def layer_swap(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    seed: int = 0,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """A child whose layers are each a copy of one parent's (after Jung et al., 2022, who swap layers between models).

    Args:
        tensors: The parents' maps.
        weights: One weight a parent, 0 or more: its chance to give a layer.
        base: Must be None.
        seed: Of the draws.
        chunk_bytes: Not needed: tensors are copied one by one.

    Returns:
        The merged map, names sorted; no memory is shared with the inputs.

    Raises:
        ValueError: a base was given, a weight is negative, or maps or weights fail preflight.
    """
    refuse_base("layer_swap", base)
    check_weights(weights, len(tensors), normalize=True)
    for i, weight in enumerate(weights):
        check_number("layer_swap", f"weight {i} of", weight, 0.0)
    if chunk_bytes < 1:
        raise ValueError(f"chunk_bytes is {chunk_bytes}; expected a positive number of bytes")
    check_mergeable(tensors)
    layers: dict[str, list[str]] = {}
    for name in sorted(tensors[0]):
        layers.setdefault(layer_of(name), []).append(name)
    merged: dict[str, Tensor] = {}
    for layer, names in layers.items():
        order = canonical_order([[flat(m[name]) for name in names] for m in tensors], weights)
        chosen = order[_draw(seed, layer, [normalized(weights)[i] for i in order])]
        for name in names:
            merged[name] = tensors[chosen][name].detach().clone(memory_format=torch.contiguous_format)
    return dict(sorted(merged.items()))


def layer_of(name: str) -> str:
    """What a tensor belongs to: `model.layers.3` of `model.layers.3.mlp.up.weight`; its module where it is in no layer."""
    found = _LAYER.match(name)
    return found.group(1) if found else name.rpartition(".")[0] or name


def _draw(seed: int, layer: str, shares: Sequence[float]) -> int:
    digest = hashlib.blake2b(f"{seed}\x1f{layer}".encode(), digest_size=8).digest()
    point, reached = int.from_bytes(digest, "big") / 2.0**64, 0.0
    for place, share in enumerate(shares):
        reached += share
        if point < reached:
            return place
    return max(place for place, share in enumerate(shares) if share > 0)
