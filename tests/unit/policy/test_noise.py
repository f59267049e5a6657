"""Sampling noise: distributed as it should, and a function of (seed, position, token) alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coharness.policy.noise import gumbel_noise, splitmix64

SEED = st.integers(0, 2**63 - 1)


def noise(seeds: list[int], positions: list[int], vocab_size: int) -> torch.Tensor:
    return gumbel_noise(np.array(seeds, dtype=np.uint64), np.array(positions, dtype=np.uint64), vocab_size)


def draws(logits: np.ndarray, seeds: list[int], positions: list[int]) -> np.ndarray:
    scores = torch.tensor(logits, dtype=torch.float32) + noise(seeds, positions, len(logits))
    return np.bincount(scores.argmax(-1).numpy(), minlength=len(logits))


@pytest.mark.parametrize("varied", ["seed", "position", "distant seed"])
def test_draws_follow_the_softmax_of_the_logits(varied: str) -> None:
    logits = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 1.5, 0.0])
    expected = np.exp(logits) / np.exp(logits).sum()
    n = 40_000
    stream, fixed = list(range(n)), [12345] * n
    seeds = {"seed": stream, "position": fixed, "distant seed": [i * 0x1234567 << 20 for i in stream]}[varied]
    observed = draws(logits, seeds, stream if varied == "position" else fixed)
    assert stats.chisquare(observed, expected * n).pvalue > 1e-3


def test_noise_is_standard_gumbel_over_a_large_vocabulary() -> None:
    values = noise([7], [3], 50_000)[0].numpy()
    assert stats.kstest(values, "gumbel_r").pvalue > 1e-3


def test_every_token_of_a_large_vocabulary_is_as_likely_as_any_other() -> None:
    winners = noise(list(range(4_000)), [0] * 4_000, 4_096).argmax(-1).numpy()
    blocks = np.bincount(winners // 256, minlength=16)
    assert stats.chisquare(blocks).pvalue > 1e-3


def test_rows_of_neighbouring_seeds_and_positions_are_uncorrelated() -> None:
    rows = noise([5, 5, 6, 6], [10, 11, 10, 11], 20_000).numpy()
    correlation = np.corrcoef(rows) - np.eye(4)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


@given(st.lists(st.tuples(SEED, st.integers(0, 10**6)), min_size=1, max_size=6), st.integers(1, 200))
def test_a_row_does_not_depend_on_its_batch(rows: list[tuple[int, int]], vocab_size: int) -> None:
    seeds, positions = [s for s, _ in rows], [p for _, p in rows]
    together = noise(seeds, positions, vocab_size)
    for i, (seed, position) in enumerate(rows):
        assert torch.equal(together[i : i + 1], noise([seed], [position], vocab_size))


@given(SEED, st.integers(1, 100), st.integers(1, 100))
def test_a_smaller_vocabulary_has_a_prefix_of_the_noise(seed: int, small: int, more: int) -> None:
    assert torch.equal(noise([seed], [0], small), noise([seed], [0], small + more)[:, :small])


def test_a_batch_larger_than_one_block_is_hashed_as_its_rows_are() -> None:
    together = noise([1, 2, 3], [0, 0, 0], 40_000)  # one row a block
    assert torch.equal(together[2:], noise([3], [0], 40_000))


def test_noise_is_finite_and_no_global_state_is_touched() -> None:
    before, numpy_before = torch.get_rng_state(), repr(np.random.get_state())
    values = noise(list(range(100)), [0] * 100, 10_000)
    assert torch.isfinite(values).all()
    assert torch.equal(before, torch.get_rng_state())
    assert numpy_before == repr(np.random.get_state())


def test_splitmix64_is_the_published_one() -> None:
    # First outputs of the reference generator from state 1234567 (Vigna's splitmix64.c); its state grows by the golden gamma.
    gamma, state, got = 0x9E3779B97F4A7C15, 1234567, []
    for i in range(3):
        got.append(splitmix64((state + i * gamma) % 2**64))
    assert got == [6457827717110365317, 3203168211198807973, 9817491932198370423]
