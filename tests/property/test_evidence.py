"""Evidence tables against an oracle that keeps every observation: a fold, additive, indifferent to order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.evolution.evidence import EvidenceTable
from coharness.records.ids import PolicyId

P0, P1 = PolicyId("p0"), PolicyId("p1")
CELL = ("signature", 1)
HALF_LIVES = st.floats(0.5, 50)
observations = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8), st.integers(0, 8)), max_size=12)
"""(version, successes, failures)"""


def folded(half_life: float, seen: list[tuple[int, int, int]]) -> EvidenceTable:
    table = EvidenceTable(half_life)
    for step, successes, failures in seen:
        table.observe(P0, CELL, step, successes, failures)
    return table


def oracle(half_life: float, seen: list[tuple[int, int, int]], step: int) -> tuple[float, float]:
    """Each observation faded by its own age, as of the reading or of the newest observation, whichever is later."""
    now = max([step, *(s for s, _, _ in seen)])
    fades = [0.5 ** ((now - s) / half_life) for s, _, _ in seen]
    return (
        sum(f * successes for f, (_, successes, _) in zip(fades, seen, strict=True)),
        sum(f * failures for f, (_, _, failures) in zip(fades, seen, strict=True)),
    )


@settings(deadline=None)
@given(half_life=HALF_LIVES, seen=observations, step=st.integers(0, 80))
def test_a_fold_of_counts_is_the_sum_of_faded_observations(
    half_life: float, seen: list[tuple[int, int, int]], step: int
) -> None:
    read = folded(half_life, seen).read(P0, CELL, step)
    assert (read.successes, read.failures) == pytest.approx(oracle(half_life, seen, step), rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(half_life=HALF_LIVES, seen=observations, data=st.data())
def test_the_order_of_observations_does_not_matter(
    half_life: float, seen: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(seen))
    first, second = (folded(half_life, order).read(P0, CELL, 40) for order in (seen, shuffled))
    assert (first.successes, first.failures) == pytest.approx((second.successes, second.failures))


@settings(deadline=None)
@given(half_life=HALF_LIVES, seen=observations, earlier=st.integers(0, 80), later=st.integers(0, 80))
def test_evidence_only_ever_fades(half_life: float, seen: list[tuple[int, int, int]], earlier: int, later: int) -> None:
    table = folded(half_life, seen)
    first, second = (table.read(P0, CELL, step) for step in sorted((earlier, later)))
    assert second.successes <= first.successes
    assert second.failures <= first.failures


@settings(deadline=None)
@given(half_life=HALF_LIVES, seen=observations, born=st.integers(40, 60), age=st.integers(0, 20))
def test_a_clone_reads_at_each_age_what_its_donor_reads_as_many_versions_on(
    half_life: float, seen: list[tuple[int, int, int]], born: int, age: int
) -> None:
    table = folded(half_life, seen)
    table.inherit(P1, P0, parent_step=born)
    child, donor = table.read(P1, CELL, age), table.read(P0, CELL, born + age)
    assert (child.successes, child.failures) == pytest.approx((donor.successes, donor.failures))
