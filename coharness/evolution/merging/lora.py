"""Merging LoRA adapters exactly, in product space, without ever forming a full weight matrix.

An adapter changes a layer by delta_W = scale * B @ A, and (B R, R^-1 A) is the same adapter for any invertible R: averaging
factors therefore depends on an accident of training, averaging delta_W does not. Per module, with the weights w_i:

    left  = [c_1 B_1 | c_2 B_2 | ...]   [out, R]      R = sum of ranks, |w_i scale_i| split evenly between both sides
    right = [d_1 A_1 ; d_2 A_2 ; ...]   [R, in]       left @ right = sum_i w_i delta_W_i
    left = Q_l L,  right^T = Q_r K^T    (two thin QRs)
    L @ K = U S V^T                     (a core of at most R x R)
    B' = Q_l U sqrt(S),  A' = sqrt(S) V^T Q_r^T       cut to the rank asked for: the best approximation of that rank

Invariants: bit-equal under any permutation of the parents; float64 inside, cast to the parents' dtype once; A' and B'
balanced, so that a cast costs both alike; inputs never changed. Driven by whoever makes merge proposals for LoRA members.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from coharness.evolution.merging.maps import TensorMap, canonical_order, flat
from coharness.evolution.merging.preflight import check_finite, check_weights, normalized

_A_SUFFIX: Final = ".lora_A.weight"
_B_SUFFIX: Final = ".lora_B.weight"

_DEAD_RELATIVE: Final = 1e-12
"""Singular values below this share of the largest are float64 rounding: the direction carries nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    """What gives an adapter's tensors their meaning: delta_W = scale * B @ A on each target module."""

    rank: int
    alpha: float
    use_rslora: bool = False
    "True: scale = alpha / sqrt(rank) (Kalajdzievski, 2023); False: alpha / rank (Hu et al., 2021)."
    target_modules: tuple[str, ...]
    "Module names; a module is targeted when its path equals one or ends in '.' and one, as in PEFT."
    fan_in_fan_out: bool = False
    "The base layer stores its weight as [in, out]; the factors keep their shapes."

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"LoRA rank is {self.rank}; expected at least 1")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ValueError(
                f"LoRA alpha is {self.alpha}; expected a finite number above 0 (with 0 the adapter does nothing)"
            )
        if not self.target_modules or len(set(self.target_modules)) != len(self.target_modules):
            raise ValueError(f"LoRA target_modules is {self.target_modules}; expected at least one name and none twice")

    @property
    def scale(self) -> float:
        """The factor in front of B @ A."""
        return self.alpha / (math.sqrt(self.rank) if self.use_rslora else self.rank)

    def targets(self, module: str) -> bool:
        """Whether the adapter is expected to have factors for the module at this path."""
        return any(module == target or module.endswith(f".{target}") for target in self.target_modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraMerge:
    """A merged adapter, and what was lost by cutting it to its rank."""

    spec: LoraSpec
    tensors: dict[str, Tensor]
    "PEFT names, sorted: '<module>.lora_A.weight' [rank, in] and '<module>.lora_B.weight' [out, rank]."
    tail_energy: dict[str, float]
    "By module: the share of the merged delta's squared Frobenius norm that was cut off, 0 (lossless) to 1."


def merge_lora(
    adapters: Sequence[tuple[LoraSpec, TensorMap]],
    weights: Sequence[float],
    out_rank: int | None = None,
    *,
    normalize: bool = True,
) -> LoraMerge:
    """The adapter whose delta_W is the best rank-`out_rank` approximation of sum_i w_i delta_W_i (Eckart and Young, 1936).

    Parents may differ in rank, alpha, rsLoRA and target modules; a module that a parent does not target has a zero delta there.
    With `out_rank` at the sum of ranks nothing is cut. Cost per module: O((in + out) R^2 + R^3), R the sum of ranks.

    Args:
        adapters: Each parent's spec and tensors in PEFT state-dict names, A [rank, in] and B [out, rank].
        weights: One finite weight a parent, negative ones allowed.
        out_rank: Rank of the result in every module; None for the largest parent rank.
        normalize: Divide the weights by their sum first.

    Returns:
        The merged adapter in the parents' dtype. It keeps alpha and rsLoRA where all parents share them, so that a member's LoRA
        settings survive its merge; otherwise alpha = out_rank, that is scale 1. Directions that carry nothing get a unit row in A
        and zeros in B, so that they can still be trained; a module that cannot have that many directions is padded with zeros.

    Raises:
        ValueError: weights or tensors fail preflight; a key belongs to DoRA, a bias, modules_to_save or another kind of
            layer; the parents disagree on a module's shape, dtype or fan_in_fan_out; or `out_rank` is below 1.
    """
    if not adapters:
        raise ValueError("nothing to merge: got 0 adapters, expected at least one")
    check_weights(weights, len(adapters), normalize=normalize)
    rank = max(spec.rank for spec, _ in adapters) if out_rank is None else out_rank
    spec = _merged_spec([spec for spec, _ in adapters], rank)
    modules_of = [_modules(f"adapter {i}", *adapter) for i, adapter in enumerate(adapters)]
    modules = sorted(set().union(*modules_of))
    _check_targets([spec for spec, _ in adapters], modules_of, modules)

    used = normalized(weights) if normalize else list(weights)
    coefficients = [weight * parent.scale for weight, (parent, _) in zip(used, adapters, strict=True)]
    tensors: dict[str, Tensor] = {}
    tail_energy: dict[str, float] = {}
    for module in modules:
        parents = [i for i, owned in enumerate(modules_of) if module in owned]
        factors = [(adapters[i][1][module + _A_SUFFIX], adapters[i][1][module + _B_SUFFIX]) for i in parents]
        _check_factors(module, parents, [adapters[i][0] for i in parents], factors)
        a, b, lost = _recompress(factors, [coefficients[i] for i in parents], rank, spec.scale)
        dtype = factors[0][0].dtype
        for suffix, factor in ((_A_SUFFIX, a), (_B_SUFFIX, b)):
            tensors[module + suffix] = factor.to(dtype).contiguous()
            check_finite(module + suffix, f"the merged adapter (cast to {dtype})", tensors[module + suffix])
        tail_energy[module] = lost
    return LoraMerge(spec=spec, tensors=tensors, tail_energy=tail_energy)


def _recompress(
    factors: Sequence[tuple[Tensor, Tensor]], coefficients: Sequence[float], rank: int, scale: float
) -> tuple[Tensor, Tensor, float]:
    """A' [rank, in], B' [out, rank] with scale * B' @ A' ~ sum_i c_i B_i @ A_i, and the share of squared norm cut off."""
    order = canonical_order([[flat(a), flat(b)] for a, b in factors], coefficients)
    roots = [math.sqrt(abs(coefficients[i])) for i in order]
    signs = [math.copysign(1.0, coefficients[i]) for i in order]
    right = torch.cat([factors[i][0].detach().double() * root for i, root in zip(order, roots, strict=True)], dim=0)
    left = torch.cat(
        [factors[i][1].detach().double() * (root * sign) for i, root, sign in zip(order, roots, signs, strict=True)],
        dim=1,
    )
    left_basis, left_core = torch.linalg.qr(left)  # [out, p], [p, R] with p = min(out, R)
    right_basis, right_core = torch.linalg.qr(right.T)  # [in, q], [q, R] with q = min(in, R)
    u, s, vh = torch.linalg.svd(left_core @ right_core.T, full_matrices=False)  # [p, k], [k], [k, q]

    energy = s.square()
    total = float(energy.sum())
    lost = float(energy[rank:].sum()) / total if total > 0 else 0.0

    kept = min(rank, s.numel())
    b = left_basis @ u[:, :kept]  # [out, kept]
    a = vh[:kept] @ right_basis.T  # [kept, in]
    # A singular pair is defined up to a common sign; the largest entry of each row of A is made positive.
    if a.numel():
        flip = torch.where(a.gather(1, a.abs().argmax(dim=1, keepdim=True)) < 0, -1.0, 1.0)  # [kept, 1]
        a, b = a * flip, b * flip.T
    root_s = (s[:kept] / scale).sqrt()
    alive = s[:kept] > _DEAD_RELATIVE * s[:1]
    # Were A and B both zero in a direction, neither would ever get a gradient.
    a = a * torch.where(alive, root_s, 1.0)[:, None]
    b = b * torch.where(alive, root_s, 0.0)
    missing = rank - kept
    return torch.nn.functional.pad(a, (0, 0, 0, missing)), torch.nn.functional.pad(b, (0, missing)), lost


def _merged_spec(specs: Sequence[LoraSpec], rank: int) -> LoraSpec:
    first = specs[0]
    for i, spec in enumerate(specs):
        if spec.fan_in_fan_out != first.fan_in_fan_out:
            raise ValueError(
                f"adapter {i} has fan_in_fan_out={spec.fan_in_fan_out}; expected {first.fan_in_fan_out} as in adapter 0 "
                f"(are they adapters of one base?)"
            )
    targets = tuple(sorted({target for spec in specs for target in spec.target_modules}))
    if all((spec.alpha, spec.use_rslora) == (first.alpha, first.use_rslora) for spec in specs):
        return replace(first, rank=rank, target_modules=targets)
    return replace(first, rank=rank, alpha=float(rank), use_rslora=False, target_modules=targets)


def _modules(label: str, spec: LoraSpec, tensors: TensorMap) -> set[str]:
    """Paths of the modules this adapter has both factors for; refuses every key that is not a plain LoRA factor."""
    for key in sorted(tensors):
        if not key.endswith((_A_SUFFIX, _B_SUFFIX)):
            raise ValueError(f"{label} has key {key!r}: {_why_refused(key)}")
    paths = {
        suffix: {key.removesuffix(suffix) for key in tensors if key.endswith(suffix)}
        for suffix in (_A_SUFFIX, _B_SUFFIX)
    }
    for module in sorted(paths[_A_SUFFIX] ^ paths[_B_SUFFIX]):
        lacking = _B_SUFFIX if module in paths[_A_SUFFIX] else _A_SUFFIX
        raise ValueError(f"{label} lacks key {module + lacking!r}; expected both factors of every adapted module")
    for module in sorted(paths[_A_SUFFIX]):
        if not spec.targets(module):
            raise ValueError(
                f"{label} has key {module + _A_SUFFIX!r}, but its spec targets {spec.target_modules}; expected a spec that "
                f"names every adapted module"
            )
    return paths[_A_SUFFIX]


def _why_refused(key: str) -> str:
    parts = key.split(".")
    if any(part.startswith("lora_magnitude_vector") for part in parts):
        return "DoRA magnitudes are not linear in the weights; expected plain LoRA factors (merge full weights instead)"
    if any(part.startswith("lora_embedding_") for part in parts):
        return "adapters on embeddings are not supported; expected plain LoRA factors on linear layers"
    if parts[-1] == "bias":
        return "biases are not part of a product of factors; expected adapters trained with bias='none'"
    if {"lora_A", "lora_B"} & set(parts):
        return "expected '<module>.lora_A.weight' without an adapter name (as peft.get_peft_model_state_dict gives it)"
    return "not a LoRA factor (modules_to_save?); expected only '<module>.lora_A.weight' and '<module>.lora_B.weight'"


def _check_targets(specs: Sequence[LoraSpec], modules_of: Sequence[set[str]], modules: Sequence[str]) -> None:
    for i, (spec, owned) in enumerate(zip(specs, modules_of, strict=True)):
        for module in modules:
            if module not in owned and spec.targets(module):
                raise ValueError(
                    f"adapter {i} lacks key {module + _A_SUFFIX!r} although its spec targets {spec.target_modules}; expected the "
                    f"factors of every targeted module (a partial save, or adapters of different bases?)"
                )


def _check_factors(
    module: str, parents: Sequence[int], specs: Sequence[LoraSpec], factors: Sequence[tuple[Tensor, Tensor]]
) -> None:
    first_a, first_b = factors[0]
    for i, spec, (a, b) in zip(parents, specs, factors, strict=True):
        label = f"adapter {i}"
        widths: Mapping[str, tuple[Tensor, tuple[int, int]]] = {
            _A_SUFFIX: (a, (spec.rank, first_a.shape[-1])),
            _B_SUFFIX: (b, (first_b.shape[0], spec.rank)),
        }
        for suffix, (tensor, expected) in widths.items():
            name = module + suffix
            if tuple(tensor.shape) != expected:
                raise ValueError(
                    f"tensor {name!r} of {label} has shape {list(tensor.shape)}; expected {list(expected)} from its rank "
                    f"{spec.rank} and adapter {parents[0]} (a rank_pattern, a convolution, or another base?)"
                )
            if tensor.dtype != first_a.dtype or not tensor.is_floating_point():
                raise ValueError(
                    f"tensor {name!r} of {label} has dtype {tensor.dtype}; expected one floating dtype throughout, "
                    f"{first_a.dtype} as in adapter {parents[0]} (cast before merging)"
                )
            check_finite(name, label, tensor)
