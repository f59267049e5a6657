"""Fractions of two-level factorials against the published table, and against the runs themselves."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from coharness.studies.ablation_fraction import Fraction, smallest_fraction

# Factors and wanted resolution -> runs and resolution of the smallest design that has it, from the usual table of designs of
# minimum aberration (Box, Hunter and Hunter; Montgomery).
TABLE = {
    (3, 3): (4, 3), (4, 3): (8, 4), (4, 4): (8, 4), (5, 3): (8, 3), (5, 4): (16, 5), (6, 3): (8, 3), (6, 4): (16, 4),
    (6, 5): (32, 6), (7, 3): (8, 3), (7, 4): (16, 4), (7, 5): (64, 7), (8, 3): (16, 4), (8, 4): (16, 4), (8, 5): (64, 5),
}  # fmt: skip


def columns(fraction: Fraction) -> np.ndarray:
    return np.array(fraction.runs())


@pytest.mark.parametrize(("asked", "expected"), TABLE.items())
def test_the_smallest_fraction_is_that_of_the_table(asked: tuple[int, int], expected: tuple[int, int]) -> None:
    found = smallest_fraction(*asked)
    assert (len(found.runs()), found.resolution) == expected


@pytest.mark.parametrize(("num_factors", "wanted"), [(3, 3), (4, 4), (5, 3), (5, 5), (6, 4), (7, 3), (7, 4), (8, 4)])
def test_the_resolution_is_the_strength_of_the_runs_plus_one(num_factors: int, wanted: int) -> None:
    """Rao (1947): of resolution R, any R - 1 factors take all their combinations equally often, and some R do not."""
    fraction = smallest_fraction(num_factors, wanted)
    assert fraction.resolution is not None
    assert fraction.resolution >= wanted
    runs = columns(fraction)

    def is_balanced(places: tuple[int, ...]) -> bool:
        counts = Counter(map(tuple, runs[:, places].tolist()))
        return len(counts) == 2 ** len(places) and len(set(counts.values())) == 1

    strength = fraction.resolution - 1
    assert all(is_balanced(places) for places in combinations(range(num_factors), strength))
    assert not all(is_balanced(places) for places in combinations(range(num_factors), strength + 1))


@pytest.mark.parametrize(("num_factors", "wanted"), [(3, 3), (5, 3), (6, 4), (7, 4)])
def test_aliases_are_the_products_with_the_same_or_the_opposite_column(num_factors: int, wanted: int) -> None:
    fraction = smallest_fraction(num_factors, wanted)
    runs = columns(fraction)
    effects = [frozenset(p) for order in (1, 2) for p in combinations(range(num_factors), order)]
    column = {effect: runs[:, sorted(effect)].prod(axis=1) for effect in effects}
    for effect in effects:
        same = {o for o in effects if o != effect and abs(int(column[o] @ column[effect])) == len(runs)}
        assert set(fraction.aliases(effect)) == same


def test_the_first_run_has_everything_in_and_no_run_stands_twice() -> None:
    runs = smallest_fraction(6, 4).runs()
    assert runs[0] == (1,) * 6
    assert len(set(runs)) == len(runs) == 16


def test_where_no_fraction_is_fine_enough_all_combinations_run() -> None:
    found = smallest_fraction(3, 4)
    assert (len(found.runs()), found.resolution, found.aliases(frozenset({0}))) == (8, None, [])


@pytest.mark.parametrize(
    ("num_factors", "resolution", "words"), [(1, 3, "got 1"), (10, 4, "got 10"), (4, 2, "confuse main")]
)
def test_what_cannot_be_planned_is_refused(num_factors: int, resolution: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        smallest_fraction(num_factors, resolution)
