"""The elementwise rules: against float64 numpy, at edge shapes, in low precision, and within their memory budget."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coharness.evolution.merging import RULES, linear, map_digest, task_arithmetic

Map = dict[str, torch.Tensor]
SHAPES: dict[str, tuple[int, ...]] = {"scalar": (), "empty": (0, 3), "one": (1,), "row": (1, 17), "matrix": (33, 7)}
WEIGHTS = [0.5, -0.3, 0.9]


def maps(count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Map]:
    rng = np.random.default_rng(seed)
    return [{n: torch.tensor(rng.normal(size=s)).to(dtype) for n, s in SHAPES.items()} for _ in range(count)]


def as_float64(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.double().numpy()


def base_for(rule: str, dtype: torch.dtype = torch.float32) -> Map | None:
    return maps(1, dtype, seed=9)[0] if RULES[rule].needs_base else None


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("normalize", [True, False])
def test_linear_equals_the_float64_sum(dtype: torch.dtype, tolerance: float, normalize: bool) -> None:
    parents = maps(3, dtype)
    merged = linear(parents, WEIGHTS, normalize=normalize)
    divisor = sum(WEIGHTS) if normalize else 1.0
    for name in SHAPES:
        expected = sum(w / divisor * as_float64(p[name]) for w, p in zip(WEIGHTS, parents, strict=True))
        np.testing.assert_allclose(as_float64(merged[name]), expected, rtol=0, atol=tolerance * 4)
        assert merged[name].dtype == dtype
        assert tuple(merged[name].shape) == SHAPES[name]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("scale", [1.0, 0.4, -2.0, 0.0])
def test_task_arithmetic_equals_the_float64_sum(
    dtype: torch.dtype, tolerance: float, normalize: bool, scale: float
) -> None:
    parents, base = maps(3, dtype), maps(1, dtype, seed=9)[0]
    merged = task_arithmetic(parents, WEIGHTS, base, scale=scale, normalize=normalize)
    divisor = sum(WEIGHTS) if normalize else 1.0
    for name in SHAPES:
        origin = as_float64(base[name])
        deltas = (w / divisor * (as_float64(p[name]) - origin) for w, p in zip(WEIGHTS, parents, strict=True))
        np.testing.assert_allclose(as_float64(merged[name]), origin + scale * sum(deltas), rtol=0, atol=tolerance * 8)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_copies_of_one_policy_merge_to_it_bit_for_bit(rule: str, dtype: torch.dtype) -> None:
    x = maps(1, dtype)[0]
    merged = RULES[rule].merge([x, x, x], [0.1, 0.3, 0.7], base_for(rule, dtype))
    assert map_digest(merged) == map_digest(x)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_inputs_are_not_changed_and_share_no_memory_with_the_result(rule: str) -> None:
    parents, base = maps(2), base_for(rule)
    before = [map_digest(m) for m in [*parents, base or {}]]
    for inputs in (parents, [parents[0], parents[0]]):
        for tensor in RULES[rule].merge(inputs, [1.0, 2.0], base).values():
            tensor.fill_(123.0)
    assert [map_digest(m) for m in [*parents, base or {}]] == before


@pytest.mark.parametrize("rule", sorted(RULES))
def test_strides_and_chunk_size_do_not_change_a_bit(rule: str) -> None:
    parents, base = maps(3), base_for(rule)
    strided: list[Map] = [m | {"matrix": m["matrix"].T.contiguous().T} for m in parents]
    expected = map_digest(RULES[rule].merge(parents, WEIGHTS, base))
    assert map_digest(RULES[rule].merge(strided, WEIGHTS, base)) == expected
    for chunk_bytes in (1, 100, 1000):
        assert map_digest(RULES[rule].merge(parents, WEIGHTS, base, chunk_bytes=chunk_bytes)) == expected


@pytest.mark.parametrize("rule", sorted(RULES))
def test_bf16_is_summed_in_float32_and_rounded_once(rule: str) -> None:
    parents, base = maps(3, torch.bfloat16), base_for(rule, torch.bfloat16)
    wide = [{n: t.double() for n, t in m.items()} for m in parents]
    wide_base = None if base is None else {n: t.double() for n, t in base.items()}
    merged, exact = (
        RULES[rule].merge(parents, [1.0, 2.0, 3.0], base),
        RULES[rule].merge(wide, [1.0, 2.0, 3.0], wide_base),
    )
    for name in SHAPES:
        assert merged[name].dtype == torch.bfloat16
        # One rounding to 8 significant bits, and the float32 sum before it.
        torch.testing.assert_close(merged[name].double(), exact[name], rtol=2.0**-8, atol=1e-6)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_agreeing_integers_are_kept_and_differing_ones_refused(rule: str) -> None:
    base = {"n": torch.tensor([4, 5])} if RULES[rule].needs_base else None
    merged = RULES[rule].merge([{"n": torch.tensor([4, 5])}] * 2, [1.0, 1.0], base)
    assert merged["n"].tolist() == [4, 5]
    assert merged["n"].dtype == torch.int64
    with pytest.raises(ValueError, match=r"'n' of map 1 is torch.int64 and differs"):
        RULES[rule].merge([{"n": torch.tensor([4, 5])}, {"n": torch.tensor([4, 6])}], [1.0, 1.0], base)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_non_finite_parent_is_refused(rule: str) -> None:
    parents = maps(2)
    parents[1]["matrix"][2, 3] = float("nan")
    with pytest.raises(ValueError, match=r"'matrix' of map 1 holds nan at index \(2, 3\)"):
        RULES[rule].merge(parents, [1.0, 0.0], base_for(rule))


def test_overflow_of_the_result_dtype_is_refused() -> None:
    big, small = {"w": torch.tensor([6e4]).half()}, {"w": torch.tensor([-6e4]).half()}
    with pytest.raises(ValueError, match=r"'w': the merged values do not fit torch.float16"):
        linear([big, small], [2.0, -1.0])


def test_each_rule_says_whether_it_takes_a_base() -> None:
    parents = maps(2)
    with pytest.raises(ValueError, match="expected None"):
        linear(parents, [1.0, 1.0], maps(1)[0])
    with pytest.raises(ValueError, match="got no base"):
        task_arithmetic(parents, [1.0, 1.0])
    with pytest.raises(ValueError, match="scale nan"):
        task_arithmetic(parents, [1.0, 1.0], maps(1)[0], scale=float("nan"))
    with pytest.raises(ValueError, match="chunk_bytes is 0"):
        linear(parents, [1.0, 1.0], chunk_bytes=0)


def test_the_table_lists_each_rule_under_its_name() -> None:
    assert [rule.name for rule in RULES.values()] == list(RULES)
    assert all(rule.description and rule.source for rule in RULES.values())


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


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_result_is_larger_than_the_chunk_budget(rule: str, dtype: torch.dtype) -> None:
    numel, chunk_bytes = 200_000, 70_000
    generator = torch.Generator().manual_seed(0)
    parents = [{"w": torch.randn(numel, generator=generator).to(dtype)} for _ in range(4)]
    base = {"w": torch.zeros(numel, dtype=dtype)} if RULES[rule].needs_base else None
    with _Allocations() as allocations:
        RULES[rule].merge(parents, [1.0, 2.0, 3.0, 4.0], base, chunk_bytes=chunk_bytes)
    result_bytes = numel * dtype.itemsize
    # No more than seven chunks (four parents, base, sum, scratch) are alive at once.
    assert [size for size in allocations.sizes if size > chunk_bytes // 7] == [result_bytes]
