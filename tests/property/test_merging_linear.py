"""Identities of the elementwise merge rules."""

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from coharness.evolution.merging import RULES, linear, map_digest, task_arithmetic

Map = dict[str, torch.Tensor]
Case = tuple[list[Map], list[float], Map, list[int]]

QUICK = settings(max_examples=60, deadline=None)
values = st.floats(-1e3, 1e3, width=32)
positive = st.floats(0.015625, 8.0)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """(parents, positive weights, base, a permutation of the parents); some parents and weights coincide."""
    shape = draw(st.sampled_from([(), (0,), (1, 3), (5,), (2, 4)]))
    arrays = hnp.arrays(np.float32, shape, elements=values)
    pool = draw(st.lists(arrays, min_size=1, max_size=4))
    picks = draw(st.lists(st.sampled_from(range(len(pool))), min_size=1, max_size=5))
    weights = draw(st.lists(st.one_of(st.just(0.25), positive), min_size=len(picks), max_size=len(picks)))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))

    def to_map(array: Any) -> Map:
        return {"w": torch.tensor(array).to(dtype)}

    order = draw(st.permutations(range(len(picks))))
    return [to_map(pool[i]) for i in picks], weights, to_map(draw(arrays)), list(order)


@pytest.mark.parametrize("rule", ["linear", "task_arithmetic", "extrapolation", "uniform_soup"])
@QUICK
@given(case=cases())
def test_permuting_parents_with_their_weights_changes_no_bit(rule: str, case: Case) -> None:
    parents, weights, base, order = case
    given_base = base if RULES[rule].needs_base else None
    merged = RULES[rule].merge(parents, weights, given_base)
    shuffled = RULES[rule].merge([parents[i] for i in order], [weights[i] for i in order], given_base)
    assert map_digest(merged) == map_digest(shuffled)


@QUICK
@given(case=cases())
def test_an_average_stays_within_its_parents(case: Case) -> None:
    parents, weights, _, _ = case
    stacked = torch.stack([p["w"].double() for p in parents])
    merged = linear(parents, weights)["w"].double()
    # One bf16 rounding of a value at most as large as the largest parent, or the float32 sum.
    slack = stacked.abs().amax(0) * 2.0 ** (-8 if parents[0]["w"].dtype == torch.bfloat16 else -20) + 1e-30
    assert (merged <= stacked.amax(0) + slack).all()
    assert (merged >= stacked.amin(0) - slack).all()


@QUICK
@given(case=cases(), factor=positive)
def test_only_the_ratio_of_weights_counts(case: Case, factor: float) -> None:
    parents, weights, _, _ = case
    merged, scaled = linear(parents, weights)["w"], linear(parents, [factor * w for w in weights])["w"]
    torch.testing.assert_close(merged.double(), scaled.double(), rtol=2.0**-7, atol=1e-2)


@QUICK
@given(case=cases())
def test_task_arithmetic_at_scale_one_is_linear_and_at_zero_the_base(case: Case) -> None:
    parents, weights, base, _ = case
    wide = [{"w": p["w"].double()} for p in parents]
    wide_base = {"w": base["w"].double()}
    torch.testing.assert_close(
        task_arithmetic(wide, weights, wide_base)["w"], linear(wide, weights)["w"], rtol=1e-12, atol=1e-9
    )
    torch.testing.assert_close(
        task_arithmetic(wide, weights, wide_base, scale=0.0)["w"], wide_base["w"], rtol=0, atol=0
    )
