"""Identities of the product-space merge: gauge, order, homogeneity."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

from coharness.evolution.merging import LoraMerge, LoraSpec, map_digest, merge_lora

Adapter = tuple[LoraSpec, dict[str, torch.Tensor]]
Case = tuple[list[Adapter], list[float], int, int]

QUICK = settings(max_examples=50, deadline=None)
A, B = "m.q.lora_A.weight", "m.q.lora_B.weight"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """(parents, weights, rank to cut to, seed); ranks, alphas and rsLoRA differ, and some parents coincide."""
    num_out, num_in = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    parents: list[Adapter] = []
    for _ in range(draw(st.integers(1, 4))):
        rank, seed = draw(st.integers(1, 4)), draw(st.integers(0, 3))
        rng = np.random.default_rng([seed, rank])
        spec = LoraSpec(
            rank=rank, alpha=draw(st.sampled_from([1.0, 8.0])), use_rslora=draw(st.booleans()), target_modules=("q",)
        )
        factors = {A: torch.tensor(rng.normal(size=(rank, num_in))), B: torch.tensor(rng.normal(size=(num_out, rank)))}
        parents.append((spec, factors))
    weights = draw(st.lists(st.sampled_from([0.25, 1.0, 1.5]), min_size=len(parents), max_size=len(parents)))
    return parents, weights, draw(st.integers(1, 6)), draw(st.integers(0, 2**16))


def delta(adapted: Adapter | LoraMerge) -> np.ndarray[Any, Any]:
    spec, tensors = (adapted.spec, adapted.tensors) if isinstance(adapted, LoraMerge) else adapted
    scale = spec.alpha / (spec.rank**0.5 if spec.use_rslora else spec.rank)
    dense: np.ndarray[Any, Any] = scale * tensors[B].numpy() @ tensors[A].numpy()
    return dense


def total_rank(parents: list[Adapter]) -> int:
    return sum(spec.rank for spec, _ in parents)


@QUICK
@given(case=cases())
def test_the_full_rank_merge_is_the_weighted_mean_of_deltas(case: Case) -> None:
    parents, weights, _, _ = case
    merged = merge_lora(parents, weights, out_rank=total_rank(parents))
    expected = sum(w * delta(p) for w, p in zip(weights, parents, strict=True)) / sum(weights)
    np.testing.assert_allclose(delta(merged), expected, rtol=0, atol=1e-10)


@QUICK
@given(case=cases())
def test_a_change_of_gauge_changes_no_delta(case: Case) -> None:
    parents, weights, _, seed = case
    rng = np.random.default_rng(seed)
    turned: list[Adapter] = []
    for spec, factors in parents:
        # A rotation times a diagonal: invertible, condition number at most 4.
        rotation, _ = np.linalg.qr(rng.normal(size=(spec.rank, spec.rank)))
        gauge = torch.tensor(rotation * rng.uniform(0.5, 2.0, size=spec.rank))
        turned.append((spec, {A: torch.linalg.inv(gauge) @ factors[A], B: factors[B] @ gauge}))
    full = total_rank(parents)
    np.testing.assert_allclose(
        delta(merge_lora(turned, weights, out_rank=full)),
        delta(merge_lora(parents, weights, out_rank=full)),
        rtol=0,
        atol=1e-9,
    )


@QUICK
@given(case=cases(), data=st.data())
def test_permuting_parents_with_their_weights_changes_no_bit(case: Case, data: st.DataObject) -> None:
    parents, weights, rank, _ = case
    order = data.draw(st.permutations(range(len(parents))))
    merged = merge_lora(parents, weights, out_rank=rank)
    shuffled = merge_lora([parents[i] for i in order], [weights[i] for i in order], out_rank=rank)
    assert map_digest(merged.tensors) == map_digest(shuffled.tensors)
    assert (merged.spec, merged.tail_energy) == (shuffled.spec, shuffled.tail_energy)


@QUICK
@given(case=cases())
def test_a_plain_adapter_and_its_rslora_twin_merge_alike(case: Case) -> None:
    parents, weights, rank, _ = case
    twins = [(replace(spec, use_rslora=True, alpha=spec.scale * spec.rank**0.5), tensors) for spec, tensors in parents]
    np.testing.assert_allclose(
        delta(merge_lora(twins, weights, out_rank=total_rank(parents))),
        delta(merge_lora(parents, weights, out_rank=total_rank(parents))),
        rtol=0,
        atol=1e-10,
    )
    lost, expected = (merge_lora(p, weights, out_rank=rank).tail_energy["m.q"] for p in (twins, parents))
    np.testing.assert_allclose(lost, expected, rtol=0, atol=1e-12)


@QUICK
@given(case=cases())
def test_tail_energy_is_the_squared_distance_to_the_uncut_merge(case: Case) -> None:
    parents, weights, rank, _ = case
    cut, whole = merge_lora(parents, weights, out_rank=rank), merge_lora(parents, weights, out_rank=total_rank(parents))
    distance = np.linalg.norm(delta(cut) - delta(whole)) ** 2
    np.testing.assert_allclose(cut.tail_energy["m.q"], distance / np.linalg.norm(delta(whole)) ** 2, rtol=0, atol=1e-9)
