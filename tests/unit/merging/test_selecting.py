"""The k largest of a stream: the same set as a full sort gives, by whichever way it is found."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from coharness.evolution.merging.selecting import Cut, largest, sample_of


def stream(values: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    buffer = torch.empty(size, dtype=values.dtype)
    for start in range(0, len(values), size):
        part = values[start : start + size]
        yield buffer[: len(part)].copy_(part)


def held(cut: Cut, values: torch.Tensor, size: int) -> list[int]:
    parts = [cut.holds(values[s : s + size].numpy(), s) for s in range(0, len(values), size)]
    return [int(i) for i in np.flatnonzero(np.concatenate(parts))]


def by_sorting(values: torch.Tensor, count: int) -> list[int]:
    order = sorted(range(len(values)), key=lambda i: (-float(values[i]), i))
    return sorted(order[:count])


GENERATOR = torch.Generator().manual_seed(0)
KINDS = {
    "spread": torch.randn(997, generator=GENERATOR).abs(),
    "few values": torch.randint(0, 4, (997,), generator=GENERATOR).float(),
    "mostly zero": torch.randn(997, generator=GENERATOR).abs() * (torch.arange(997) % 50 == 0),
    "all zero": torch.zeros(997),
    "tiny": torch.rand(997, generator=GENERATOR) * 1e-40,
    "one block of large ones": torch.cat(
        [torch.rand(900, generator=GENERATOR), 5 + torch.rand(97, generator=GENERATOR)]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("capacity", [1, 60, 2000])
def test_the_set_is_that_of_a_stable_sort(kind: str, dtype: torch.dtype, capacity: int) -> None:
    values = KINDS[kind].to(dtype)
    for count in (0, 1, 20, 499, 990, 997):
        cut = largest(lambda: stream(values, 100), len(values), count, values[::3], capacity)
        assert held(cut, values, 64) == by_sorting(values, count), (count, cut)


def test_a_sample_that_misleads_changes_the_way_and_not_the_answer() -> None:
    values = KINDS["spread"]
    for sample in (torch.zeros(40), torch.full((40,), 9.0), values[:5]):
        cut = largest(lambda: stream(values, 100), len(values), 300, sample, 50)
        assert held(cut, values, 997) == by_sorting(values, 300)


def test_a_sample_is_spread_and_bounded() -> None:
    values = torch.arange(200_000.0)
    sample = sample_of(values)
    assert 2**14 < len(sample) <= 2**16
    assert abs(float(sample.mean()) - float(values.mean())) < 10


@pytest.mark.parametrize("count", [-1, 998])
def test_a_count_out_of_range_is_refused(count: int) -> None:
    values = KINDS["spread"]
    with pytest.raises(ValueError, match=rf"the {count} largest of 997"):
        largest(lambda: stream(values, 100), len(values), count, values, 10)
