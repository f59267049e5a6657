"""Noise made on a device is the noise made by numpy."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.policy.generation.device_noise import device_gumbel_noise
from coharness.policy.noise import gumbel_noise

WORD = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(st.lists(st.tuples(WORD, st.integers(0, 2**40)), min_size=1, max_size=5), st.integers(1, 3_000))
def test_the_noise_is_that_of_numpy(rows: list[tuple[int, int]], vocab_size: int) -> None:
    seeds, positions = (np.array(column, dtype=np.uint64) for column in zip(*rows, strict=True))
    ours = device_gumbel_noise(seeds, positions, vocab_size, torch.device("cpu"))
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, gumbel_noise(seeds, positions, vocab_size), rtol=1e-6, atol=1e-6)


def test_it_is_finite_over_a_whole_vocabulary() -> None:
    seeds = np.arange(8, dtype=np.uint64)
    assert torch.isfinite(device_gumbel_noise(seeds, seeds, 151_936, torch.device("cpu"))).all()
