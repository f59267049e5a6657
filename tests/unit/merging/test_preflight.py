"""Preflight refuses what cannot be merged and names the first field that differs."""

import math

import pytest
import torch

from coharness.evolution.merging import RULES
from coharness.evolution.merging.preflight import check_finite, check_mergeable, check_weights

Map = dict[str, torch.Tensor]


def parent(**changes: torch.Tensor) -> Map:
    return {"a": torch.ones(2, 3), "b": torch.ones(4), "n": torch.tensor([1, 2])} | changes


def without(name: str) -> Map:
    return {key: tensor for key, tensor in parent().items() if key != name}


def test_equal_architectures_pass() -> None:
    check_mergeable([parent(), parent(a=torch.zeros(2, 3))], base=parent(b=torch.zeros(4)))


def test_float8_passes_unless_it_holds_nan() -> None:
    good = {"q": torch.ones(3).to(torch.float8_e4m3fn)}
    bad = {"q": torch.tensor([1.0, math.nan, 1.0]).to(torch.float8_e4m3fn)}
    check_mergeable([good, good])
    with pytest.raises(ValueError, match=r"'q' of map 1 holds nan at index \(1,\)"):
        check_mergeable([good, bad])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (without("b"), r"map 1 lacks tensor 'b'"),
        (parent(c=torch.ones(1)), r"map 1 has the extra tensor 'c'"),
        (parent(a=torch.ones(3, 2)), r"'a' of map 1 has shape \[3, 2\]; expected \[2, 3\]"),
        (
            parent(b=torch.ones(4, dtype=torch.bfloat16)),
            r"'b' of map 1 has dtype torch.bfloat16; expected torch.float32",
        ),
        (parent(n=torch.tensor([1, 3])), r"'n' of map 1 is torch.int64 and differs"),
        (parent(a=torch.tensor([[1.0, 1, 1], [1, math.inf, math.nan]])), r"'a' of map 1 holds inf at index \(1, 1\)"),
    ],
    ids=["missing", "extra", "shape", "dtype", "integers", "non-finite"],
)
def test_the_first_difference_is_named(other: Map, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_mergeable([parent(), other])


def test_the_first_map_and_the_base_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"'b' of map 0 holds nan at index \(2,\)"):
        check_mergeable([parent(b=torch.tensor([1.0, 1.0, math.nan, 1.0]))])
    with pytest.raises(ValueError, match=r"'a' of base has shape \[1\]"):
        check_mergeable([parent()], base=parent(a=torch.ones(1)))


def test_no_map_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0 maps"):
        check_mergeable([])


@pytest.mark.parametrize("index", [(0, 0), (599, 999), (300, 7)])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_index_is_exact_in_large_and_strided_tensors(index: tuple[int, int], transposed: bool) -> None:
    values = torch.zeros(600, 1000)
    if transposed:
        values = torch.zeros(1000, 600).T
    values[index] = -math.inf
    with pytest.raises(ValueError, match=rf"holds -inf at index \({index[0]}, {index[1]}\)"):
        check_finite("w", "map 0", values)


def test_a_non_finite_scalar_has_the_empty_index() -> None:
    with pytest.raises(ValueError, match=r"holds nan at index \(\)"):
        check_finite("w", "map 0", torch.tensor(math.nan))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "got 1 weights for 2 maps"),
        ([1.0, math.nan], "weight 1 is nan"),
        ([math.inf, 1.0], "weight 0 is inf"),
        ([0.0, 0.0], "every one of the 2 weights is zero"),
        ([1.0, -1.0], "sum to zero"),
    ],
)
@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_refuses_weights_without_a_meaning(rule: str, weights: list[float], message: str) -> None:
    base = parent() if RULES[rule].needs_base else None
    with pytest.raises(ValueError, match=message):
        RULES[rule].merge([parent(), parent()], weights, base)


def test_a_sum_of_rounding_noise_counts_as_zero() -> None:
    assert math.fsum([0.1, 0.2, -0.3]) != 0
    with pytest.raises(ValueError, match="sum to zero"):
        check_weights([0.1, 0.2, -0.3], 3, normalize=True)
    check_weights([0.1, 0.2, -0.3], 3, normalize=False)
