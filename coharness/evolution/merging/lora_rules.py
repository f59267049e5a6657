"""Merging LoRA adapters by any rule: exact where the rule is linear in the changes, else on small cores or on dense changes.

    linear rules    product space (`lora.merge_lora`): exact
    other rules     core: every parent's change seen from bases that all parents share, left [out, p] and right [in, q]:
                        M_i = left^T delta_W_i right     [p, q], p and q at most the sum of ranks
                    the rule merges the M_i, and left M right^T is the merged change (Core Space; Panariello et al., 2025)
                    dense: the rule merges the delta_W_i themselves, which takes memory and a dense SVD for the cut

Seeing a change from orthonormal bases loses nothing and keeps every inner product, so rules that depend on angles and lengths
alone (slerp, karcher, model stock) give the same in either space. Rules that treat entries one by one (TIES, DARE) do not:
their result in core space depends on the bases, and is labelled so. The bases here are the singular vectors of the parents'
stacked changes, not of their stacked factors, so that a change of gauge, (B R, R^-1 A), changes nothing but signs that are
then fixed.

Invariants as in `lora`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import torch
from torch import Tensor

from coharness.evolution.merging.lora import Factored, LoraMerge, RankPolicy, assemble, from_core, merge_lora
from coharness.evolution.merging.lora_factors import ModuleFactors, each_module
from coharness.evolution.merging.lora_spec import LoraSpec
from coharness.evolution.merging.maps import TensorMap
from coharness.evolution.merging.preflight import check_weights
from coharness.evolution.merging.table import MergeRule, Statistics

DEFAULT_DENSE_BYTES: Final = 2**30
_DEAD_RELATIVE: Final = 1e-10


class Space(StrEnum):
    """Where a rule sees the changes of an adapter."""

    PRODUCT = "product"
    "As products of factors; linear rules alone, exact."
    CORE = "core"
    "From bases that the parents share; exact for rules of angles and lengths, dependent on the bases for rules of entries."
    DENSE = "dense"
    "As full matrices, module by module."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRuleMerge:
    """A merged adapter, and where its rule saw the changes."""

    merge: LoraMerge
    space: Space
    depends_on_basis: bool
    "True: another choice of bases would have given another merge."


def merge_lora_by(
    rule: MergeRule,
    adapters: Sequence[tuple[LoraSpec, TensorMap]],
    weights: Sequence[float],
    policy: RankPolicy | None = None,
    *,
    space: Space | str | None = None,
    dense_bytes: int = DEFAULT_DENSE_BYTES,
    settings: Mapping[str, Any] | None = None,
) -> LoraRuleMerge:
    """Merge adapters by a rule of the table; the base, where the rule takes one, is the adapter that changes nothing.

    Args:
        rule: The rule.
        adapters: As for `merge_lora`.
        weights: One a parent.
        policy: The rank of the result.
        space: Where the rule sees the changes; PRODUCT where the rule is linear and CORE where not if left out.
        dense_bytes: Most memory that DENSE may take for one module.
        settings: The rule's own, by name.

    Raises:
        ValueError: the rule needs statistics of full weights, is not linear but PRODUCT was asked for, a module does not fit
            `dense_bytes`; or as `merge_lora` and the rule itself.
    """
    given = dict(settings or {})
    rule.check_settings(given)
    policy = policy or RankPolicy()
    if rule.statistics is not Statistics.NONE:
        raise ValueError(
            f"{rule.name} needs {rule.statistics} statistics of full weights, which adapters do not have; expected another rule"
        )
    coefficients = rule.coefficients(weights, given)
    chosen = Space(space) if space is not None else Space.PRODUCT if coefficients is not None else Space.CORE
    if chosen is Space.PRODUCT:
        if coefficients is None:
            raise ValueError(f"{rule.name} is not linear in the changes; expected space core or dense, got product")
        check_weights(weights, len(adapters), normalize=False)
        merged = merge_lora(
            adapters,
            coefficients,
            policy.rank,
            normalize=False,
            tail_tolerance=policy.tail_tolerance,
            max_rank=policy.max_rank,
        )
        return LoraRuleMerge(merge=merged, space=chosen, depends_on_basis=False)

    def factorise() -> Iterator[Factored]:
        for factors in each_module(adapters):
            if chosen is Space.DENSE:
                yield _dense(rule, factors, weights, dense_bytes, given)
            else:
                yield _core(rule, factors, weights, given)

    merged = assemble([spec for spec, _ in adapters], factorise, policy)
    return LoraRuleMerge(
        merge=merged, space=chosen, depends_on_basis=chosen is Space.CORE and not rule.is_rotation_invariant
    )


def shared_bases(factors: ModuleFactors) -> tuple[Tensor, Tensor]:
    """Orthonormal bases of all parents' column and row spaces: left [out, p] and right [in, q], float64.

    They are the left singular vectors of [delta_1 | delta_2 | ...] and of its transposed kind, found without forming a change:
    with A^T = Q R, delta delta^T = (B R^T) (B R^T)^T.
    """
    left, right = [], []
    for a, b, scale in zip(factors.a, factors.b, factors.scales, strict=True):
        wide_a, wide_b = a.double() * scale, b.double()
        left.append(wide_b @ torch.linalg.qr(wide_a.T).R.T)
        right.append(wide_a.T @ torch.linalg.qr(wide_b).R.T)
    return _basis(torch.cat(left, dim=1)), _basis(torch.cat(right, dim=1))


def _basis(stack: Tensor) -> Tensor:
    """Orthonormal columns [rows, k] that span those of a stack, the strongest first, whatever the order it was stacked in."""
    order = sorted(range(stack.shape[1]), key=lambda j: stack[:, j].tolist())
    basis: Tensor
    basis, s, _ = torch.linalg.svd(stack[:, order], full_matrices=False)
    basis = basis[:, s > _DEAD_RELATIVE * s[:1]]
    if basis.numel():
        # A singular vector is defined up to its sign; its largest entry is made positive.
        basis = basis * torch.where(basis.gather(0, basis.abs().argmax(dim=0, keepdim=True)) < 0, -1.0, 1.0)
    return basis


def _core(rule: MergeRule, factors: ModuleFactors, weights: Sequence[float], settings: Mapping[str, Any]) -> Factored:
    left, right = shared_bases(factors)
    cores = {
        i: (left.T @ b.double()) @ (a.double() @ right) * scale
        for i, a, b, scale in zip(factors.parents, factors.a, factors.b, factors.scales, strict=True)
    }
    unchanged = torch.zeros((left.shape[1], right.shape[1]), dtype=torch.float64)
    core = _by_rule(rule, factors.module, [cores.get(i, unchanged) for i in range(len(weights))], weights, settings)
    return from_core(factors, left, core, right)


def _dense(
    rule: MergeRule, factors: ModuleFactors, weights: Sequence[float], dense_bytes: int, settings: Mapping[str, Any]
) -> Factored:
    num_out, num_in = factors.b[0].shape[0], factors.a[0].shape[1]
    # The parents, the base and the result in float32, and the SVD's matrices in float64.
    needed = num_out * num_in * (4 * (len(weights) + 2) + 8 * 3)
    if needed > dense_bytes:
        raise ValueError(
            f"module {factors.module!r} would take {needed:,} bytes as dense [{num_out}, {num_in}] changes of {len(weights)} "
            f"parents; expected at most dense_bytes={dense_bytes:,} (raise it, or merge in core space)"
        )
    changes = {
        i: (b.double() @ a.double() * scale).float()
        for i, a, b, scale in zip(factors.parents, factors.a, factors.b, factors.scales, strict=True)
    }
    unchanged = torch.zeros((num_out, num_in))
    merged = _by_rule(rule, factors.module, [changes.get(i, unchanged) for i in range(len(weights))], weights, settings)
    u, s, vh = torch.linalg.svd(merged.double(), full_matrices=False)
    return Factored(module=factors.module, dtype=factors.a[0].dtype, left=u, s=s, right=vh)


def _by_rule(
    rule: MergeRule, module: str, changes: Sequence[Tensor], weights: Sequence[float], settings: Mapping[str, Any]
) -> Tensor:
    name = f"{module}.weight"
    base = {name: torch.zeros_like(changes[0])} if rule.takes_base else None
    return rule.configured(settings)([{name: change} for change in changes], weights, base)[name]
