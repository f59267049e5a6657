"""The checks made before a merge: that the parents can be merged at all, and that their weights mean something.

A merge of mismatched or damaged parents gives plausible numbers, so everything here refuses, and names the first field that
differs: the first name in sorted order, and of its fields shape, dtype, agreement (integers), finiteness. Every rule calls these
checks itself; a scheduler may call them earlier, to refuse a proposal before it costs anything.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from coharness.evolution.merging.maps import TensorMap, all_finite, compare_bytes, flat

_SCAN_NUMEL: Final = 2**18

_SMALLEST_RELATIVE_SUM: Final = 1e-9
"""Below this share of sum |w|, a weight sum is rounding noise and dividing by it would blow the parents up."""


def check_mergeable(
    maps: Sequence[TensorMap],
    *,
    base: TensorMap | None = None,
    statistics: Sequence[TensorMap] = (),
    values: bool = True,
) -> None:
    """Refuse maps that no rule can merge: other names, shapes or dtypes, differing integer tensors, non-finite values.

    Args:
        maps: The parents; each is compared with the first.
        base: The map deltas are taken from, held to the same fields; None if the rule takes none.
        statistics: A further map a parent, held to the parents' names and shapes but not to their dtype.
        values: Also read every floating tensor for NaN and infinity. The rules leave that to their own first reading.

    Raises:
        ValueError: no map, another number of statistics than of maps, or the first difference: the tensor, the map it was
            found in, what was expected.
    """
    if not maps:
        raise ValueError("nothing to merge: got 0 maps, expected at least one")
    if statistics and len(statistics) != len(maps):
        raise ValueError(f"got statistics of {len(statistics)} maps for {len(maps)} maps; expected one for each map")
    labelled: dict[str, TensorMap] = {f"map {i}": tensors for i, tensors in enumerate(maps)}
    if base is not None:
        labelled["base"] = base
    further: dict[str, TensorMap] = {f"the statistics of map {i}": tensors for i, tensors in enumerate(statistics)}
    _check_names(labelled | further)
    for name in sorted(maps[0]):
        first = maps[0][name]
        for label, tensors in labelled.items():
            tensor = first if tensors is maps[0] else tensors[name]
            _check_like(name, label, tensor, first)
            if values:
                check_finite(name, label, tensor)
        for label, tensors in further.items():
            _check_shape(name, label, tensors[name], first)
            if values:
                check_finite(name, label, tensors[name])


def check_weights(weights: Sequence[float], num_maps: int, *, normalize: bool) -> None:
    """Refuse weights that do not fit the maps, are not finite, are all zero or, if they are to be normalised, sum to zero.

    Raises:
        ValueError: naming the count, the weight or the sum at fault.
    """
    if len(weights) != num_maps:
        raise ValueError(f"got {len(weights)} weights for {num_maps} maps; expected one weight for each map")
    for i, weight in enumerate(weights):
        if not math.isfinite(weight):
            raise ValueError(f"weight {i} is {weight}; expected a finite number (was a fitness missing?)")
    total, size = math.fsum(weights), math.fsum(map(abs, weights))
    if size == 0.0:
        raise ValueError(f"every one of the {num_maps} weights is zero; expected at least one that is not")
    if normalize and abs(total) <= _SMALLEST_RELATIVE_SUM * size:
        raise ValueError(
            f"weights {list(weights)} sum to zero and cannot be normalised; pass normalize=False to merge a plain difference"
        )


def normalized(weights: Sequence[float]) -> list[float]:
    """The weights divided by their sum, which is exact and so the same in any order; `check_weights` must have passed."""
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def require_base(rule: str, base: TensorMap | None) -> TensorMap:
    """The base of a rule that takes deltas.

    Raises:
        ValueError: there is none.
    """
    if base is None:
        raise ValueError(
            f"{rule} got no base; expected the map the parents were trained from (or use a rule that takes none, such as linear)"
        )
    return base


def refuse_base(rule: str, base: TensorMap | None) -> None:
    """Refuse a base that a rule would ignore.

    Raises:
        ValueError: there is one.
    """
    if base is not None:
        raise ValueError(
            f"the {rule} rule got a base; expected None (task_arithmetic is the rule that merges deltas from a base)"
        )


def check_number(
    rule: str, name: str, value: float, low: float = -math.inf, high: float = math.inf, *, above: bool = False
) -> None:
    """Refuse a rule's setting that is not a finite number from `low` (excluded where `above`) to `high`.

    Raises:
        ValueError: naming rule, setting, value and range.
    """
    if math.isfinite(value) and low <= value <= high and not (above and value == low):
        return
    span = "" if (low, high) == (-math.inf, math.inf) else f" {'above' if above else 'from'} {low:g} to {high:g}"
    raise ValueError(f"{rule} got {name} {value}; expected a finite number{span}")


def check_finite(name: str, label: str, tensor: Tensor) -> None:
    """Refuse a floating tensor with a NaN or infinity.

    Raises:
        ValueError: naming the tensor, the map (`label`) and the index of the first bad value in row-major order.
    """
    if not tensor.is_floating_point():
        return
    values = flat(tensor)
    for start in range(0, values.numel(), _SCAN_NUMEL):
        block = values[start : start + _SCAN_NUMEL]
        if not all_finite(block):
            offset = start + int(torch.argmin(torch.isfinite(block.double()).to(torch.uint8)))
            index = tuple(int(i) for i in np.unravel_index(offset, tuple(tensor.shape)))
            raise ValueError(
                f"tensor {name!r} of {label} holds {values[offset].item()} at index {index}; expected finite values only "
                f"(quarantine that member instead of merging it)"
            )


def _check_names(labelled: Mapping[str, TensorMap]) -> None:
    first_label, first = next(iter(labelled.items()))
    expected = set(first)
    for label, tensors in labelled.items():
        differing = sorted(expected.symmetric_difference(tensors))
        if not differing:
            continue
        kind = "lacks" if differing[0] in expected else "has the extra"
        raise ValueError(
            f"{label} {kind} tensor {differing[0]!r} compared with {first_label} ({len(differing)} names differ); expected the "
            f"same names in all maps (are they policies of one base and one architecture?)"
        )


def _check_shape(name: str, label: str, tensor: Tensor, first: Tensor) -> None:
    if tensor.shape != first.shape:
        raise ValueError(
            f"tensor {name!r} of {label} has shape {list(tensor.shape)}; expected {list(first.shape)} as in map 0 "
            f"(a resized vocabulary or another architecture?)"
        )


def _check_like(name: str, label: str, tensor: Tensor, first: Tensor) -> None:
    _check_shape(name, label, tensor, first)
    if tensor.dtype != first.dtype:
        raise ValueError(
            f"tensor {name!r} of {label} has dtype {tensor.dtype}; expected {first.dtype} as in map 0 (cast before merging)"
        )
    if not tensor.is_floating_point() and tensor is not first and compare_bytes(flat(tensor), flat(first)) != 0:
        raise ValueError(
            f"tensor {name!r} of {label} is {tensor.dtype} and differs from map 0; only floating tensors can be averaged, "
            f"expected integer and bool tensors to agree"
        )
