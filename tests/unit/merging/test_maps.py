"""Name -> tensor maps: what a digest sees, what a file keeps, and the order parents are taken in."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from coharness.evolution.merging.maps import (
    all_finite,
    canonical_order,
    compare_bytes,
    load_map,
    map_digest,
    open_map,
    save_map,
)
from coharness.records.errors import WeightsError


def sample_map() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "b.weight": torch.randn(3, 4, generator=generator).to(torch.bfloat16),
        "a.weight": torch.randn(2, 5, generator=generator),
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "steps": torch.tensor([7, 8]),
        "mask": torch.tensor([True, False]),
    }


def test_digest_ignores_insertion_order_and_strides() -> None:
    plain = sample_map()
    reordered = {name: plain[name] for name in reversed(plain)}
    reordered["a.weight"] = plain["a.weight"].T.contiguous().T
    assert not reordered["a.weight"].is_contiguous()
    assert map_digest(reordered) == map_digest(plain)


@pytest.mark.parametrize(
    "changed",
    [
        {"x": torch.zeros(2, 2)},
        {"y": torch.zeros(4)},
        {"x": torch.zeros(4, dtype=torch.int32)},
        {"x": torch.tensor([0.0, 0.0, 0.0, -0.0])},
        {"x": torch.zeros(4), "y": torch.zeros(0)},
    ],
    ids=["shape", "name", "dtype", "sign of a zero", "another tensor"],
)
def test_digest_sees_every_field(changed: dict[str, torch.Tensor]) -> None:
    assert map_digest(changed) != map_digest({"x": torch.zeros(4)})


def test_odd_strides_of_tiny_tensors_do_not_matter() -> None:
    # torch calls these contiguous although their stride is 0.
    none, one = torch.as_strided(torch.zeros(1), (0,), (0,)), torch.as_strided(torch.ones(1), (1,), (0,))
    assert map_digest({"none": none, "one": one}) == map_digest({"none": torch.zeros(0), "one": torch.ones(1)})
    assert compare_bytes(one, torch.ones(1)) == 0


def test_digest_is_pinned() -> None:
    # A stored digest must be reproducible by later versions.
    assert map_digest({"a": torch.zeros(0, 3)}) == "369c68e58ec9c92806e9fcb0a04308cd453545c333a65cb3965b9024992c9aeb"


def test_a_saved_map_reads_back_to_the_bit(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_map(path, sample_map(), metadata={"step": "3"})
    assert map_digest(load_map(path)) == map_digest(sample_map())
    assert map_digest(load_file(path)) == map_digest(sample_map())
    with open_map(path) as lazy:
        assert list(lazy) == sorted(sample_map())
        assert len(lazy) == len(sample_map())
        assert torch.equal(lazy["a.weight"], sample_map()["a.weight"])
        with pytest.raises(KeyError, match="absent"):
            lazy["absent"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights.safetensors"]


def test_views_and_tied_tensors_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    table = torch.arange(12.0).reshape(3, 4)
    aliased = {
        "embed": table,
        "head": table,
        "row": table[1],
        "columns": table.T,
        "grad": torch.ones(2, requires_grad=True),
    }
    save_map(path, aliased)
    assert map_digest(load_map(path)) == map_digest(aliased)


def test_a_cut_off_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_map(path, sample_map())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WeightsError, match=r"weights\.safetensors.*interrupted"):
        load_map(path)
    with pytest.raises(WeightsError, match="absent"):
        load_map(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("position", [0, 1023, 1024, 400_000])
def test_bytes_compare_like_python_bytes(position: int) -> None:
    left = torch.zeros(500_000)
    right = left.clone()
    right[position] = -1.0
    a, b = left.numpy().tobytes(), right.numpy().tobytes()
    assert compare_bytes(left, right) == (a > b) - (a < b)
    assert compare_bytes(right, left) == (b > a) - (b < a)
    assert compare_bytes(left, left.clone()) == 0


def test_a_prefix_comes_before_the_longer_tensor() -> None:
    assert compare_bytes(torch.ones(3), torch.ones(4)) == -1
    assert compare_bytes(torch.ones(4), torch.ones(3)) == 1


def test_canonical_order_is_by_weight_then_content() -> None:
    parents = [[torch.tensor([float(v)])] for v in (3, 1, 2)]
    # By raw little-endian bytes 2.0 (00 00 00 40) comes before 1.0 (00 00 80 3f).
    expected = [(0.2, 3.0), (0.4, 2.0), (0.4, 1.0)]
    for permutation in itertools.permutations(range(3)):
        shuffled = [parents[i] for i in permutation]
        weights = [[0.2, 0.4, 0.4][i] for i in permutation]
        order = canonical_order(shuffled, weights)
        assert [(weights[i], shuffled[i][0].item()) for i in order] == expected


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_finiteness_is_told_from_a_sum_that_overflows(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    assert all_finite(torch.full((8,), largest, dtype=torch.float64).to(dtype))
    assert all_finite(torch.zeros(0, dtype=dtype))
    for bad in (math.nan, -math.inf):
        if dtype is torch.float8_e4m3fn and bad == -math.inf:
            continue  # it has no infinity
        values = torch.full((8,), largest, dtype=torch.float64).to(dtype)
        values[5] = bad
        assert not all_finite(values)
    assert not all_finite(torch.tensor([math.inf, -math.inf]).to(torch.float32))
