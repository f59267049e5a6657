"""Pairing: the thinnest evidence first, ties by lot, a share uniformly."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.evolution.pairing import choose_slot


def chosen(counts: list[float], uniform: float, num: int = 600) -> Counter[int]:
    rng = np.random.default_rng(0)
    return Counter(choose_slot(counts, uniform, rng) for _ in range(num))


def test_the_slot_practised_least_is_chosen() -> None:
    assert chosen([5.0, 2.0, 9.0], 0.0) == {1: 600}


def test_ties_are_broken_by_lot() -> None:
    # Decayed counts that differ by rounding alone are a tie.
    seen = chosen([2.0, 7.0, 2.0 + 1e-12], 0.0)
    assert seen.keys() == {0, 2}
    assert min(seen.values()) > 200


def test_a_share_is_drawn_uniformly_so_that_no_slot_starves() -> None:
    seen = chosen([0.0, 100.0, 100.0], 0.3, num=3_000)
    for index in (1, 2):
        assert abs(seen[index] / 3_000 - 0.1) < 4 * (0.1 * 0.9 / 3_000) ** 0.5


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.floats(0, 1), st.integers(0, 2**32))
def test_the_choice_is_a_slot_and_a_function_of_the_generator(counts: list[float], uniform: float, seed: int) -> None:
    first, second = (choose_slot(counts, uniform, np.random.default_rng(seed)) for _ in range(2))
    assert first == second
    assert 0 <= first < len(counts)
    if uniform == 0:
        assert counts[first] <= min(counts) + 1e-9
