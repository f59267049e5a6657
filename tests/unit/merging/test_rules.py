"""What every rule of the table keeps to, whatever it computes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coharness.evolution.merging import RULES, BaseUse, Statistics, map_digest
from tests.unit.merging.cases import ALL, RANDOM, SHAPES, WEIGHTS, Map, base_for, count_for, maps, merge

KEEPS_COPIES = [
    "extrapolation",  # at step 0
    "fisher",
    "karcher",
    "layer_swap",
    "linear",
    "model_stock",
    "multislerp",
    "regmean",
    "sce",
    "slerp",
    "task_arithmetic",
    "ties",  # at density 1, as all that follow
    "ties_count",
    "dare",
    "della",
    "breadcrumbs",
    "uniform_soup",
    "warp",  # at the end of its way
]
WHOLE: Mapping[str, dict[str, Any]] = {
    "extrapolation": {"step": 0.0},
    "warp": {"towards": 1.0},
    **{name: {"density": 1.0} for name in ("ties", "ties_count", "dare", "della", "breadcrumbs")},
}


def test_the_table_lists_each_rule_under_its_name_with_its_source() -> None:
    assert [rule.name for rule in RULES.values()] == list(RULES)
    assert all(rule.description and any(char.isdigit() for char in rule.source) for rule in RULES.values())


@pytest.mark.parametrize("rule", KEEPS_COPIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copies_of_one_policy_merge_to_it_bit_for_bit(rule: str, dtype: torch.dtype) -> None:
    x = maps(1, dtype)[0]
    count = count_for(rule)
    merged = merge(rule, [x] * count, WEIGHTS[:count], base_for(rule, dtype), **WHOLE.get(rule, {}))
    if rule == "regmean":  # solves for the one tensor that has inner products
        torch.testing.assert_close(merged.pop("matrix"), x["matrix"])
        x = {name: tensor for name, tensor in x.items() if name != "matrix"}
    assert map_digest(merged) == map_digest(x)


@pytest.mark.parametrize("rule", ALL)
def test_the_base_alone_merges_to_itself(rule: str) -> None:
    base, count = maps(1, seed=9)[0], count_for(rule)
    given = base if RULES[rule].takes_base else None
    merged = merge(rule, [base] * count, WEIGHTS[:count], given)
    for name, tensor in base.items():
        torch.testing.assert_close(merged[name], tensor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rule", ALL)
def test_inputs_are_not_changed_and_share_no_memory_with_the_result(rule: str) -> None:
    parents, base, count = maps(count_for(rule)), base_for(rule), count_for(rule)
    before = [map_digest(m) for m in [*parents, base or {}]]
    for inputs in (parents, [parents[0]] * count):
        for tensor in merge(rule, inputs, WEIGHTS[:count], base).values():
            tensor.fill_(123.0)
    assert [map_digest(m) for m in [*parents, base or {}]] == before


@pytest.mark.parametrize("rule", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_strides_chunks_and_order_do_not_change_a_bit(rule: str, dtype: torch.dtype) -> None:
    parents, base, count = maps(count_for(rule), dtype), base_for(rule, dtype), count_for(rule)
    weights = WEIGHTS[:count]
    expected = merge(rule, parents, weights, base)
    assert all(
        (expected[n].dtype, tuple(expected[n].shape)) == (dtype, shape) and torch.isfinite(expected[n]).all()
        for n, shape in SHAPES.items()
    )
    strided: list[Map] = [m | {"matrix": m["matrix"].T.contiguous().T} for m in parents]
    assert map_digest(merge(rule, strided, weights, base)) == map_digest(expected)
    assert map_digest(merge(rule, parents, weights, base, chunk_bytes=300)) == map_digest(expected)
    assert map_digest(merge(rule, parents[::-1], weights[::-1], base)) == map_digest(expected)


@pytest.mark.parametrize("rule", ALL)
def test_each_tensor_is_merged_on_its_own(rule: str) -> None:
    parents, base, count = maps(count_for(rule)), base_for(rule), count_for(rule)
    whole = merge(rule, parents, WEIGHTS[:count], base)
    for name in SHAPES:
        alone = None if base is None else {name: base[name]}
        one = merge(rule, [{name: m[name]} for m in parents], WEIGHTS[:count], alone)
        assert torch.equal(one[name], whole[name])


@pytest.mark.parametrize("rule", ALL)
def test_bf16_is_summed_in_float32_and_rounded_once(rule: str) -> None:
    count = count_for(rule)
    parents, base = maps(count, torch.bfloat16), base_for(rule, torch.bfloat16)
    # The same values in float32, where nothing is rounded at the end.
    wide = [{n: t.float() for n, t in m.items()} for m in parents]
    wide_base = None if base is None else {n: t.float() for n, t in base.items()}
    merged, exact = merge(rule, parents, WEIGHTS[:count], base), merge(rule, wide, WEIGHTS[:count], wide_base)
    for name in SHAPES:
        assert merged[name].dtype == torch.bfloat16
        # Bytes of other dtypes may order tied parents otherwise, and so round a sum otherwise.
        torch.testing.assert_close(merged[name].float(), exact[name], rtol=2.0**-8, atol=1e-6)


@pytest.mark.parametrize("rule", ALL)
def test_agreeing_integers_are_kept_and_differing_ones_refused(rule: str) -> None:
    count = count_for(rule)
    base = {"n": torch.tensor([4, 5])} if RULES[rule].takes_base else None
    merged = merge(rule, [{"n": torch.tensor([4, 5])}] * count, WEIGHTS[:count], base)
    assert merged["n"].tolist() == [4, 5]
    assert merged["n"].dtype == torch.int64
    other = [{"n": torch.tensor([4, 5])}] * (count - 1) + [{"n": torch.tensor([4, 6])}]
    with pytest.raises(ValueError, match=rf"'n' of map {count - 1} is torch.int64 and differs"):
        merge(rule, other, WEIGHTS[:count], base)


@pytest.mark.parametrize("rule", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_non_finite_parent_or_base_is_refused_by_name(rule: str, bad: float) -> None:
    count = count_for(rule)
    parents = maps(count)
    weights = [1.0] * (count - 1) + [0.5]
    parents[1]["row"][0, 3] = bad
    with pytest.raises(ValueError, match=rf"'row' of map 1 holds {bad} at index \(0, 3\)"):
        merge(rule, parents, weights, base_for(rule))
    base = base_for(rule)
    if base is not None:
        base["one"][0] = bad
        with pytest.raises(ValueError, match=rf"'one' of base holds {bad} at index \(0,\)"):
            merge(rule, maps(count), weights, base)


@pytest.mark.parametrize("rule", ALL)
def test_each_rule_says_what_it_takes(rule: str) -> None:
    found, count = RULES[rule], count_for(rule)
    parents, weights = maps(count), WEIGHTS[:count]
    if found.base is BaseUse.REQUIRED:
        with pytest.raises(ValueError, match="got no base"):
            merge(rule, parents, weights)
    if found.base is BaseUse.REFUSED:
        with pytest.raises(ValueError, match="expected None"):
            merge(rule, parents, weights, maps(1)[0])
    if found.statistics is not Statistics.NONE:
        with pytest.raises(ValueError, match="statistics"):
            found.merge(parents, weights)
    if found.least_parents > 1:
        with pytest.raises(ValueError, match="got 1 maps"):
            merge(rule, parents[:1], weights[:1], base_for(rule))
        with pytest.raises(ValueError, match="got 1 parents"):
            found.check_count(1)
    with pytest.raises(ValueError, match="chunk_bytes is 0"):
        merge(rule, parents, weights, base_for(rule), chunk_bytes=0)
    with pytest.raises(ValueError, match=rf"{rule} has no setting 'densty'"):
        found.check_settings({"densty": 0.5})


@pytest.mark.parametrize("rule", RANDOM)
def test_random_rules_draw_by_seed_and_by_nothing_else(rule: str) -> None:
    parents = [{f"layers.{i}.w": t for i, t in enumerate(torch.randn(8, 40, generator=_seeded(j)))} for j in range(3)]
    base = {name: torch.zeros(40) for name in parents[0]} if RULES[rule].takes_base else None
    state = torch.get_rng_state()
    first, again = (merge(rule, parents, WEIGHTS, base, seed=1) for _ in range(2))
    other = merge(rule, parents, WEIGHTS, base, seed=2)
    assert map_digest(first) == map_digest(again) != map_digest(other)
    assert torch.equal(torch.get_rng_state(), state)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("rule", ["linear", "task_arithmetic", "ties", "extrapolation"])
def test_overflow_of_the_result_dtype_is_refused(rule: str) -> None:
    big, small = {"w": torch.tensor([6e4, 6e4]).half()}, {"w": torch.tensor([5e4, 6e4]).half()}
    base = {"w": torch.tensor([-6e4, 6e4]).half()} if RULES[rule].takes_base else None
    settings: Mapping[str, dict[str, Any]] = {"linear": {"normalize": False}, "extrapolation": {"step": 7.0}}
    with pytest.raises(ValueError, match=r"'w': the merged values do not fit torch.float16"):
        merge(rule, [big, small], [2.0, 1.0], base, **settings.get(rule, {"scale": 8.0}))


class _Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the storage bytes of every tensor an operation makes that none of its inputs owned."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        owned = {
            a.untyped_storage().data_ptr() for a in [*args, *(kwargs or {}).values()] if isinstance(a, torch.Tensor)
        }
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in owned:
                self.sizes.append(tensor.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("rule", [name for name in ALL if name not in ("regmean", "layer_swap")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_result_is_larger_than_the_working_memory(rule: str, dtype: torch.dtype) -> None:
    rows, width, chunk_bytes = 1_000, 200, 100_000
    count = count_for(rule)
    parents = [{"w": torch.randn(rows, width, generator=_seeded(i)).to(dtype)} for i in range(count)]
    base = {"w": torch.zeros(rows, width, dtype=dtype)} if RULES[rule].takes_base else None
    settings = {}
    if RULES[rule].statistics is Statistics.FISHER:
        settings["statistics"] = [{"w": parent["w"].abs()} for parent in parents]
    configured = RULES[rule].configured(settings)
    with _Allocations() as allocations:
        configured(parents, WEIGHTS[:count], base, chunk_bytes=chunk_bytes)
    # What sums are taken by, and the samples of a selection, have a size of their own.
    fixed = 2**14 * 8 * count
    assert max(size for size in allocations.sizes if size != rows * width * dtype.itemsize) <= max(chunk_bytes, fixed)
    assert allocations.sizes.count(rows * width * dtype.itemsize) == 1
