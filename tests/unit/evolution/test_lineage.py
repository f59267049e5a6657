"""Who descends from whom, and how many founders a population has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.evolution.lineage import Birth, clan, effective_size, founders


def births(*rows: tuple[str, tuple[str, ...], tuple[float, ...], float]) -> dict[str, Birth]:
    return {
        child: Birth(child=child, parents=parents, shares=shares, time=time) for child, parents, shares, time in rows
    }


TREE = births(
    ("p3", ("p0",), (1.0,), 10), ("p4", ("p3", "p1"), (0.5, 0.5), 20), ("p5", (), (), 30), ("p6", ("p4",), (1.0,), 40)
)


def test_founders_are_those_alive_at_the_moment() -> None:
    assert founders(TREE, "p6", since=0) == {"p0": 0.5, "p1": 0.5}
    assert founders(TREE, "p6", since=10) == {"p3": 0.5, "p1": 0.5}
    assert founders(TREE, "p6", since=20) == {"p4": 1.0}
    assert founders(TREE, "p6", since=40) == {"p6": 1.0}
    assert founders(TREE, "p5", since=0) == {"p5": 1.0}, "who began from scratch has nobody behind it"


def test_a_clan_is_named_by_its_largest_founder_and_ties_by_name() -> None:
    assert clan(TREE, "p6", since=0) == "p0"
    unequal = births(("c", ("a", "b"), (0.3, 0.7), 1))
    assert clan(unequal, "c", since=0) == "b"


def test_effective_size_counts_founders() -> None:
    assert effective_size({}, ["a", "b", "c"], 0) == 3
    clones = births(*((f"c{i}", ("a",), (1.0,), 1.0) for i in range(5)))
    assert effective_size(clones, [f"c{i}" for i in range(5)], 0) == 1
    assert effective_size(clones, [f"c{i}" for i in range(5)], 1) == pytest.approx(5)
    assert effective_size(births(("m", ("a", "b"), (0.5, 0.5), 1)), ["m"], 0) == 2
    assert effective_size({}, [], 0) == 0


@given(st.data())
def test_shares_sum_to_one_and_the_size_lies_between_one_and_the_number_of_founders(data: st.DataObject) -> None:
    names = [f"f{i}" for i in range(4)]
    known: dict[str, Birth] = {}
    for i in range(data.draw(st.integers(0, 12))):
        parents = tuple(data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
        shares = tuple(1 / len(parents) for _ in parents)
        known[f"c{i}"] = Birth(child=f"c{i}", parents=parents, shares=shares, time=float(i + 1))
        names.append(f"c{i}")
    members = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
    since = float(data.draw(st.integers(0, 12)))
    found = {name: founders(known, name, since) for name in members}
    assert all(sum(shares.values()) == pytest.approx(1) for shares in found.values())
    num_founders = len({founder for shares in found.values() for founder in shares})
    assert 1 - 1e-9 <= effective_size(known, members, since) <= num_founders + 1e-9


def test_a_birth_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="its own parent"):
        Birth(child="c", parents=("c",), shares=(1.0,), time=0)
    with pytest.raises(ValueError, match="expected one each"):
        Birth(child="c", parents=("a",), shares=(), time=0)
    with pytest.raises(ValueError, match="expected 1"):
        Birth(child="c", parents=("a", "b"), shares=(0.5, 0.6), time=0)
