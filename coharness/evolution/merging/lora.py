"""Merging LoRA adapters exactly, in product space, without ever forming a full weight matrix.

An adapter changes a layer by delta_W = scale * B @ A, and (B R, R^-1 A) is the same adapter for any invertible R: averaging
factors therefore depends on an accident of training, averaging delta_W does not. Per module, with the weights w_i:

    left  = [c_1 B_1 | c_2 B_2 | ...]   [out, R]      R = sum of ranks, |w_i scale_i| split evenly between both sides
    right = [d_1 A_1 ; d_2 A_2 ; ...]   [R, in]       left @ right = sum_i w_i delta_W_i
    left = Q_l L,  right^T = Q_r K^T    (two thin QRs)
    L @ K = U S V^T                     (a core of at most R x R)
    B' = Q_l U sqrt(S),  A' = sqrt(S) V^T Q_r^T       cut to the rank asked for: the best approximation of that rank

Invariants: bit-equal under any permutation of the parents; float64 inside, cast to the parents' dtype once; A' and B'
balanced, so that a cast costs both alike; inputs never changed. Driven by whoever makes merge proposals for LoRA members, and
by `lora_rules`, which merges by the rules that are not linear.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import torch
from torch import Tensor

from coharness.evolution.merging.lora_factors import A_SUFFIX, B_SUFFIX, ModuleFactors, each_module
from coharness.evolution.merging.lora_spec import LoraSpec
from coharness.evolution.merging.maps import TensorMap, canonical_order, flat
from coharness.evolution.merging.preflight import check_finite, check_number, check_weights, normalized

_DEAD_RELATIVE: Final = 1e-12
"""Singular values below this share of the largest are float64 rounding: the direction carries nothing."""

_RANK_STEP: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraMerge:
    """A merged adapter, and what was lost by cutting it to its rank."""

    spec: LoraSpec
    tensors: dict[str, Tensor]
    "PEFT names, sorted: '<module>.lora_A.weight' [rank, in] and '<module>.lora_B.weight' [out, rank]."
    tail_energy: dict[str, float]
    "By module: the share of the merged delta's squared Frobenius norm that was cut off, 0 (lossless) to 1."


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPolicy:
    """The rank of a merged adapter, the same in every module."""

    rank: int | None = None
    "Rank to start from; the largest rank of any parent where None."
    tail_tolerance: float | None = None
    "Grow while any module loses more than this share of its squared norm; None never grows."
    max_rank: int | None = None
    "Where growing ends; twice the rank to start from where None."

    def __post_init__(self) -> None:
        for name, rank in (("rank", self.rank), ("max_rank", self.max_rank)):
            if rank is not None and rank < 1:
                raise ValueError(f"LoRA {name} is {rank}; expected at least 1")
        if self.tail_tolerance is not None:
            check_number("a rank policy", "tail_tolerance", self.tail_tolerance, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factored:
    """A module's merged change as left @ diag(s) @ right, s falling."""

    module: str
    dtype: torch.dtype
    "Of the parents' factors."
    left: Tensor
    "[out, k], orthonormal columns"
    s: Tensor
    "[k]"
    right: Tensor
    "[k, in], orthonormal rows"


Factorise: TypeAlias = Callable[[], Iterable[Factored]]
"""Gives the modules once more; only one of them needs to be in memory at a time."""


def merge_lora(
    adapters: Sequence[tuple[LoraSpec, TensorMap]],
    weights: Sequence[float],
    out_rank: int | None = None,
    *,
    normalize: bool = True,
    tail_tolerance: float | None = None,
    max_rank: int | None = None,
) -> LoraMerge:
    """The adapter whose delta_W is the best rank-`out_rank` approximation of sum_i w_i delta_W_i (Eckart and Young, 1936).

    Parents may differ in rank, alpha, rsLoRA, patterns and target modules; a module that a parent does not target has a zero
    delta there. With `out_rank` at the sum of ranks nothing is cut. Cost per module: O((in + out) R^2 + R^3), R the sum of ranks.

    Args:
        adapters: Each parent's spec and tensors in PEFT state-dict names, A [rank, in] and B [out, rank].
        weights: One finite weight a parent, negative ones allowed.
        out_rank: Rank of the result in every module; None for the largest parent rank.
        normalize: Divide the weights by their sum first.
        tail_tolerance: Raise the rank, by multiples of 8, while some module loses more than this share of its squared norm.
        max_rank: Where that ends; twice `out_rank` where None.

    Returns:
        The merged adapter in the parents' dtype. It keeps alpha and rsLoRA where all parents share them and have no patterns, so
        that a member's LoRA settings survive its merge; otherwise alpha = rank, that is scale 1. Directions that carry nothing
        get a unit row in A and zeros in B, so that they can still be trained; a module that cannot have that many directions is
        padded with zeros.

    Raises:
        ValueError: weights or tensors fail preflight; a key belongs to DoRA, a bias, modules_to_save or another kind of
            layer; the parents disagree on a module's shape, dtype or fan_in_fan_out; or `out_rank` is below 1.
    """
    if not adapters:
        raise ValueError("nothing to merge: got 0 adapters, expected at least one")
    check_weights(weights, len(adapters), normalize=normalize)
    used = normalized(weights) if normalize else list(weights)
    return assemble(
        [spec for spec, _ in adapters],
        lambda: (_weighted_sum(factors, used) for factors in each_module(adapters)),
        RankPolicy(rank=out_rank, tail_tolerance=tail_tolerance, max_rank=max_rank),
    )


def assemble(specs: Sequence[LoraSpec], factorise: Factorise, policy: RankPolicy) -> LoraMerge:
    """Cut every module to one rank and make an adapter of them."""
    largest = max(rank for spec in specs for rank in (spec.rank, *(rank for _, rank in spec.rank_pattern)))
    start = largest if policy.rank is None else policy.rank
    spec = _merged_spec(specs, start)
    tensors, tails, spectra = _cut(factorise(), spec)
    rank = _grown_rank(spectra.values(), start, policy)
    if rank != start:
        spec = _merged_spec(specs, rank)
        tensors, tails, _ = _cut(factorise(), spec)
    return LoraMerge(spec=spec, tensors=tensors, tail_energy=tails)


def tail_energy(s: Tensor, rank: int) -> float:
    """The share of the squared norm that lies beyond the first `rank` of the singular values s [k]."""
    energy = s.square()
    total = float(energy.sum())
    return float(energy[rank:].sum()) / total if total > 0 else 0.0


def _grown_rank(spectra: Iterable[Tensor], start: int, policy: RankPolicy) -> int:
    if policy.tail_tolerance is None:
        return start
    tolerance, top = policy.tail_tolerance, max(start, 2 * start if policy.max_rank is None else policy.max_rank)
    held, rank = list(spectra), start
    while rank < top and any(tail_energy(s, rank) > tolerance for s in held):
        rank = min(top, (rank // _RANK_STEP + 1) * _RANK_STEP)
    return rank


def _cut(modules: Iterable[Factored], spec: LoraSpec) -> tuple[dict[str, Tensor], dict[str, float], dict[str, Tensor]]:
    """(factors by name, tail energy by module, singular values by module) at the spec's rank and scale."""
    tensors: dict[str, Tensor] = {}
    tails: dict[str, float] = {}
    spectra: dict[str, Tensor] = {}
    for found in modules:
        a, b = _balanced(found, spec.rank, spec.scale)
        for suffix, factor in ((A_SUFFIX, a), (B_SUFFIX, b)):
            name = found.module + suffix
            tensors[name] = factor.to(found.dtype).contiguous()
            check_finite(name, f"the merged adapter (cast to {found.dtype})", tensors[name])
        tails[found.module] = tail_energy(found.s, spec.rank)
        spectra[found.module] = found.s
    return tensors, tails, spectra


def _weighted_sum(factors: ModuleFactors, weights: Sequence[float]) -> Factored:
    coefficients = [weights[i] * scale for i, scale in zip(factors.parents, factors.scales, strict=True)]
    order = canonical_order([[flat(a), flat(b)] for a, b in zip(factors.a, factors.b, strict=True)], coefficients)
    roots = [math.sqrt(abs(coefficients[i])) for i in order]
    signs = [math.copysign(1.0, coefficients[i]) for i in order]
    right = torch.cat([factors.a[i].double() * root for i, root in zip(order, roots, strict=True)], dim=0)
    left = torch.cat(
        [factors.b[i].double() * (root * sign) for i, root, sign in zip(order, roots, signs, strict=True)], dim=1
    )
    left_basis, left_core = torch.linalg.qr(left)  # [out, p], [p, R] with p = min(out, R)
    right_basis, right_core = torch.linalg.qr(right.T)  # [in, q], [q, R] with q = min(in, R)
    return from_core(factors, left_basis, left_core @ right_core.T, right_basis)


def from_core(factors: ModuleFactors, left_basis: Tensor, core: Tensor, right_basis: Tensor) -> Factored:
    """The change left_basis [out, p] @ core [p, q] @ right_basis^T [q, in], both bases with orthonormal columns."""
    u, s, vh = torch.linalg.svd(core, full_matrices=False)  # [p, k], [k], [k, q]
    return Factored(module=factors.module, dtype=factors.a[0].dtype, left=left_basis @ u, s=s, right=vh @ right_basis.T)


def _balanced(found: Factored, rank: int, scale: float) -> tuple[Tensor, Tensor]:
    """A' [rank, in] and B' [out, rank] with scale * B' @ A' ~ the change."""
    kept = min(rank, found.s.numel())
    b, a, s = found.left[:, :kept], found.right[:kept], found.s[:kept]
    # A singular pair is defined up to a common sign; the largest entry of each row of A is made positive.
    if a.numel():
        flip = torch.where(a.gather(1, a.abs().argmax(dim=1, keepdim=True)) < 0, -1.0, 1.0)  # [kept, 1]
        a, b = a * flip, b * flip.T
    root_s = (s / scale).sqrt()
    alive = s > _DEAD_RELATIVE * s[:1]
    # Were A and B both zero in a direction, neither would ever get a gradient.
    a = a * torch.where(alive, root_s, 1.0)[:, None]
    b = b * torch.where(alive, root_s, 0.0)
    missing = rank - kept
    return torch.nn.functional.pad(a, (0, 0, 0, missing)), torch.nn.functional.pad(b, (0, missing))


def _merged_spec(specs: Sequence[LoraSpec], rank: int) -> LoraSpec:
    first = specs[0]
    targets = tuple(sorted({target for spec in specs for target in spec.target_modules}))
    plain = not any(spec.rank_pattern or spec.alpha_pattern for spec in specs)
    if plain and all((spec.alpha, spec.use_rslora) == (first.alpha, first.use_rslora) for spec in specs):
        return replace(first, rank=rank, target_modules=targets)
    return LoraSpec(rank=rank, alpha=float(rank), target_modules=targets, fan_in_fan_out=first.fan_in_fan_out)
