"""Evidence: fades with versions, passes to descendants, and is never changed by reading."""

from copy import deepcopy

import pytest

from coharness.evolution.evidence import EvidenceTable
from coharness.records.ids import PolicyId

P0, P1 = PolicyId("p0"), PolicyId("p1")
CELL, OTHER = ("signature", 1), ("signature", 2)


def table(half_life: float = 4.0, **observed: tuple[int, int, int]) -> EvidenceTable:
    """A table with (version, successes, failures) observed of p0 in `CELL`, one keyword each."""
    made = EvidenceTable(half_life)
    for step, successes, failures in observed.values():
        made.observe(P0, CELL, step, successes, failures)
    return made


def counts(made: EvidenceTable, policy: PolicyId = P0, step: int = 0) -> tuple[float, float]:
    read = made.read(policy, CELL, step)
    return read.successes, read.failures


def test_nothing_observed_is_no_evidence() -> None:
    assert counts(table()) == (0.0, 0.0)
    assert table().read(P0, CELL, 5).mean == 0.5


def test_an_observation_counts_half_after_a_half_life_and_a_quarter_after_two() -> None:
    made = table(half_life=4.0, a=(10, 8, 4))
    assert counts(made, step=10) == (8.0, 4.0)
    assert counts(made, step=14) == pytest.approx((4.0, 2.0))
    assert counts(made, step=18) == pytest.approx((2.0, 1.0))


def test_what_is_observed_later_fades_what_was_known() -> None:
    made = table(half_life=4.0, a=(0, 8, 0), b=(4, 1, 3))
    assert counts(made, step=4) == pytest.approx((5.0, 3.0))


def test_a_late_observation_of_an_old_version_counts_less_and_takes_nothing_away() -> None:
    made = table(half_life=4.0, a=(4, 2, 2), b=(0, 8, 0))
    assert counts(made, step=4) == pytest.approx((6.0, 2.0))


def test_evidence_never_counts_more_than_it_was_observed() -> None:
    # Reading as of an earlier version than the observation does not blow it up.
    assert counts(table(a=(10, 3, 1)), step=2) == (3.0, 1.0)


def test_reading_changes_nothing() -> None:
    made = table(a=(0, 3, 1), b=(5, 1, 1))
    before = deepcopy(made)
    for step in (0, 5, 50):
        made.read(P0, CELL, step)
        made.read(P0, OTHER, step)
        made.read(P1, CELL, step)
    assert made == before


def test_cells_and_policies_are_kept_apart() -> None:
    made = table(a=(0, 3, 1))
    made.observe(P0, OTHER, 0, 0, 9)
    made.observe(P1, CELL, 0, 5, 5)
    assert counts(made) == (3.0, 1.0)


def test_a_clone_knows_what_its_donor_did_as_of_its_own_version_0() -> None:
    made = table(half_life=4.0, a=(10, 8, 4))
    made.inherit(P1, P0, parent_step=14)
    assert counts(made, P1, step=0) == pytest.approx(counts(made, P0, step=14))
    # From there on each fades by its own versions.
    assert counts(made, P1, step=4) == pytest.approx((2.0, 1.0))
    made.observe(P1, CELL, 0, 10, 0)
    assert counts(made, P0, step=10) == (8.0, 4.0)


def test_a_merge_inherits_a_part_of_each_parent() -> None:
    made = table(a=(0, 8, 4))
    made.observe(P1, CELL, 0, 0, 4)
    child = PolicyId("p2")
    for parent in (P0, P1):
        made.inherit(child, parent, parent_step=0, discount=0.25)
    assert counts(made, child) == pytest.approx((2.0, 2.0))


def test_inheriting_from_the_unknown_gives_nothing() -> None:
    made = table()
    made.inherit(P1, P0, parent_step=3)
    assert counts(made, P1) == (0.0, 0.0)


def test_what_is_forgotten_is_gone_and_its_heirs_keep_theirs() -> None:
    made = table(a=(0, 3, 1))
    made.inherit(P1, P0, parent_step=0)
    made.forget(P0)
    made.forget(PolicyId("never"))
    assert counts(made) == (0.0, 0.0)
    assert counts(made, P1) == (3.0, 1.0)
