"""Identities of the rules that treat entries one by one or see angles alone, and of adapters merged by any rule."""

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from coharness.evolution.merging import RULES, LoraSpec, RankPolicy, Space, Statistics, map_digest, merge_lora_by
from coharness.evolution.merging.masks import random_words

Map = dict[str, torch.Tensor]
Adapter = tuple[LoraSpec, Map]

QUICK = settings(max_examples=30, deadline=None)
PLAIN = sorted(name for name, rule in RULES.items() if rule.statistics is Statistics.NONE)
values = st.floats(-8.0, 8.0, width=32)
A, B = "m.layers.0.q.lora_A.weight", "m.layers.0.q.lora_B.weight"


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Map], list[float], Map]:
    """(two parents, positive weights, base); entries coincide often, so that draws, ties and zeros occur."""
    shape = draw(st.sampled_from([(), (1, 3), (6,), (3, 4)]))
    entries = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), values)
    arrays = [draw(hnp.arrays(np.float32, shape, elements=entries)) for _ in range(3)]
    weights = draw(st.lists(st.sampled_from([0.25, 1.0, 1.5]), min_size=2, max_size=2))
    first, second, base = ({"w": torch.tensor(array)} for array in arrays)
    return [first, second], weights, base


@pytest.mark.parametrize("rule", PLAIN)
@QUICK
@given(case=cases())
def test_any_order_and_any_chunks_give_the_same_bits(rule: str, case: tuple[list[Map], list[float], Map]) -> None:
    parents, weights, base = case
    given_base = base if RULES[rule].takes_base else None
    merged = RULES[rule].merge(parents, weights, given_base)
    assert torch.isfinite(merged["w"]).all()
    swapped = RULES[rule].merge(parents[::-1], weights[::-1], given_base)
    chunked = RULES[rule].merge(parents, weights, given_base, chunk_bytes=64)
    assert map_digest(merged) == map_digest(swapped) == map_digest(chunked)


@pytest.mark.parametrize("rule", ["ties", "ties_count", "dare_ties", "della", "breadcrumbs_ties", "sce"])
@QUICK
@given(case=cases())
def test_turning_every_change_round_turns_the_merge_round(rule: str, case: tuple[list[Map], list[float], Map]) -> None:
    parents, weights, _ = case
    zero = {"w": torch.zeros_like(parents[0]["w"])}
    merged = RULES[rule].merge(parents, weights, zero)["w"]
    turned = RULES[rule].merge([{"w": -p["w"]} for p in parents], weights, zero)["w"]
    # Equal parents with equal weights may change places when their signs do, and so draw each other's masks.
    if not RULES[rule].is_random:
        torch.testing.assert_close(turned, -merged, rtol=0, atol=0)
    assert torch.isfinite(turned).all()


@QUICK
@given(case=cases(), density=st.sampled_from([0.2, 0.5, 1.0]))
def test_an_elected_mean_stays_within_the_changes_that_have_its_sign(
    case: tuple[list[Map], list[float], Map], density: float
) -> None:
    parents, weights, _ = case
    zero = {"w": torch.zeros_like(parents[0]["w"])}
    merged = RULES["ties"].configured({"density": density})(parents, weights, zero)["w"].double()
    stacked = torch.stack([p["w"].double() for p in parents])
    assert (merged <= stacked.amax(0).clamp_min(0) + 1e-6).all()
    assert (merged >= stacked.amin(0).clamp_max(0) - 1e-6).all()


@pytest.mark.parametrize("rule", ["slerp", "multislerp", "karcher"])
@QUICK
@given(case=cases(), factor=st.sampled_from([0.125, 0.5, 4.0]))
def test_spherical_means_scale_with_their_parents(
    rule: str, case: tuple[list[Map], list[float], Map], factor: float
) -> None:
    parents, weights, _ = case
    wide = [{"w": p["w"].double()} for p in parents]
    merged = RULES[rule].merge(wide, weights)["w"]
    scaled = RULES[rule].merge([{"w": factor * p["w"]} for p in wide], weights)["w"]
    torch.testing.assert_close(scaled, factor * merged, rtol=1e-6, atol=1e-9)


@QUICK
@given(start=st.integers(0, 100), count=st.integers(0, 60), cut=st.integers(0, 60), rank=st.integers(0, 3))
def test_random_words_are_those_of_their_index(start: int, count: int, cut: int, rank: int) -> None:
    whole = random_words(7, "w", rank, 0, 200)
    assert random_words(7, "w", rank, start, count).tolist() == whole[start : start + count].tolist()
    parts = [random_words(7, "w", rank, 0, cut), random_words(7, "w", rank, cut, 200 - cut)]
    assert np.concatenate(parts).tolist() == whole.tolist()


# Adapters -----------------------------------------------------------------------------------------------------------


def adapter(seed: int, shape: tuple[int, int], rank: int, spec: dict[str, Any]) -> Adapter:
    rng = np.random.default_rng(seed)
    factors = {
        A: torch.tensor(rng.normal(size=(rank, shape[1]))),
        B: torch.tensor(rng.normal(size=(shape[0], rank))),
    }
    return LoraSpec(rank=rank, target_modules=("q",), **spec), factors


def delta(spec: LoraSpec, tensors: Map) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = (
        spec.alpha / (spec.rank**0.5 if spec.use_rslora else spec.rank) * (tensors[B].numpy() @ tensors[A].numpy())
    )
    return found


def merged_delta(rule: str, parents: list[Adapter], weights: list[float], **options: Any) -> np.ndarray[Any, Any]:
    total = sum(spec.rank for spec, _ in parents)
    found = merge_lora_by(RULES[rule], parents, weights, RankPolicy(rank=total), **options).merge
    return delta(found.spec, found.tensors)


@st.composite
def adapters(draw: st.DrawFn) -> tuple[list[Adapter], list[float]]:
    shape = draw(st.tuples(st.integers(4, 8), st.integers(4, 8)))
    specs = [{"alpha": 4.0}, {"alpha": 2.0, "use_rslora": True}]
    parents = [adapter(draw(st.integers(0, 999)) + 1000 * i, shape, 2, spec) for i, spec in enumerate(specs)]
    return parents, draw(st.sampled_from([[1.0, 1.0], [0.25, 0.75]]))


@pytest.mark.parametrize("rule", [n for n in PLAIN if RULES[n].is_rotation_invariant and n != "layer_swap"])
@QUICK
@given(case=adapters())
def test_rules_of_angles_give_the_same_in_core_space_and_on_full_matrices(
    rule: str, case: tuple[list[Adapter], list[float]]
) -> None:
    parents, weights = case
    module = "m.layers.0.q.weight"
    full = [{module: torch.tensor(delta(*parent))} for parent in parents]
    base = {module: torch.zeros_like(full[0][module])} if RULES[rule].takes_base else None
    expected = RULES[rule].merge(full, weights, base)[module].numpy()
    np.testing.assert_allclose(merged_delta(rule, parents, weights), expected, atol=1e-8)
    np.testing.assert_allclose(merged_delta(rule, parents, weights, space=Space.CORE), expected, atol=1e-8)
    np.testing.assert_allclose(merged_delta(rule, parents, weights, space=Space.DENSE), expected, atol=1e-5)


@pytest.mark.parametrize("rule", ["ties", "dare", "breadcrumbs", "sce", "karcher"])
@QUICK
@given(case=adapters(), seed=st.integers(0, 999))
def test_a_change_of_gauge_changes_no_merge_in_core_space(
    rule: str, case: tuple[list[Adapter], list[float]], seed: int
) -> None:
    parents, weights = case
    rng = np.random.default_rng(seed)
    turned: list[Adapter] = []
    for spec, factors in parents:
        rotation, _ = np.linalg.qr(rng.normal(size=(spec.rank, spec.rank)))
        gauge = torch.tensor(rotation * rng.uniform(0.5, 2.0, size=spec.rank))
        turned.append((spec, {A: torch.linalg.inv(gauge) @ factors[A], B: factors[B] @ gauge}))
    expected = merged_delta(rule, parents, weights, space=Space.CORE)
    # Canonical order goes by bytes of the cores, whose last bits a change of gauge moves: weights that differ fix it.
    if weights[0] != weights[1] or rule != "dare":
        np.testing.assert_allclose(merged_delta(rule, turned, weights, space=Space.CORE), expected, atol=1e-7)


@QUICK
@given(case=adapters(), rule=st.sampled_from(PLAIN))
def test_any_rule_merges_adapters_in_any_order(case: tuple[list[Adapter], list[float]], rule: str) -> None:
    parents, weights = case
    np.testing.assert_array_equal(
        merged_delta(rule, parents, weights), merged_delta(rule, parents[::-1], weights[::-1])
    )
