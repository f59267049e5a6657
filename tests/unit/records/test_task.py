"""Tasks: named by their content, in one pool each by a hash of that name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.records.ids import TaskId, derive_seed, hash_unit
from coharness.records.task import (
    MIN_TASKS_TO_SEAL,
    POOL_SHARES,
    FamilySpec,
    Pool,
    Task,
    VerifierKind,
    VerifierSpec,
    pool_of,
    task_id,
)


def task(question: str = "q", answer: str = "a") -> Task:
    return Task(
        id=task_id("count", 2, question, answer),
        family="count",
        level=2,
        seed=9,
        question=question,
        answer=answer,
        verifier=VerifierSpec(kind=VerifierKind.EXACT),
        references={"plain": answer},
    )


def test_the_shares_of_the_pools_are_kept_within_three_sigma() -> None:
    num = 20_000
    pools = [pool_of(task_id("count", 3, str(n), "")) for n in range(num)]
    assert sum(share for _, share in POOL_SHARES) == pytest.approx(1.0)
    assert {pool for pool, _ in POOL_SHARES} == set(Pool)
    for pool, share in POOL_SHARES:
        assert abs(pools.count(pool) / num - share) < 3 * (share * (1 - share) / num) ** 0.5


@given(st.text(max_size=20))
def test_a_pool_is_a_function_of_the_id(name: str) -> None:
    assert pool_of(TaskId(name)) is pool_of(TaskId(name))


def test_a_tasks_pool_and_recipe_are_those_of_its_id() -> None:
    made = task()
    assert made.pool is pool_of(made.id)
    assert (made.ref.family, made.ref.level, made.ref.seed, made.ref.id) == ("count", 2, 9, made.id)


def test_all_that_makes_a_task_this_one_is_in_its_id() -> None:
    ids = {
        task_id("count", 1, "q", "a"),
        task_id("sort", 1, "q", "a"),
        task_id("count", 2, "q", "a"),
        task_id("count", 1, "p", "a"),
        task_id("count", 1, "q", "b"),
        # A separator keeps parts from running into each other.
        task_id("count", 1, "qa", ""),
        task_id("count", 1, "", "qa"),
    }
    assert len(ids) == 7
    assert task().id == task().id


@pytest.mark.parametrize(("count", "sealed"), [(None, True), (MIN_TASKS_TO_SEAL, True), (MIN_TASKS_TO_SEAL - 1, False)])
def test_only_a_large_cell_may_be_sealed(count: int | None, sealed: bool) -> None:
    spec = FamilySpec(name="count", num_levels=2, formats=("plain",), num_tasks=(1, count))
    assert not spec.may_seal(1)
    assert spec.may_seal(2) is sealed


@given(st.lists(st.text(max_size=5) | st.integers(), min_size=1, max_size=4))
def test_derived_numbers_are_pure_and_in_range(parts: list[str | int]) -> None:
    assert 0 <= hash_unit(*parts) < 1
    assert 0 <= derive_seed(*parts) < 2**63
    assert derive_seed(*parts) == derive_seed(*parts)
    assert derive_seed(*parts, "more") != derive_seed(*parts)
