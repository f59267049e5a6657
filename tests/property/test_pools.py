"""A pool is a pure function of the task's id: it needs no bookkeeping and never changes."""

from hypothesis import given
from hypothesis import strategies as st

from coharness.records.ids import TaskId
from coharness.records.task import POOL_SHARES, Pool, pool_of
from coharness.tasks import TaskSources, draw_task
from coharness.tasks.builtin import FAMILY_NAMES, BuiltinSource

SOURCES = TaskSources([BuiltinSource()])
CELLS = {"family": st.sampled_from(FAMILY_NAMES), "level": st.integers(1, 8), "seed": st.integers(0, 2**63 - 1)}


@given(**CELLS)
def test_the_pool_of_a_task_depends_on_its_id_alone(family: str, level: int, seed: int) -> None:
    task = SOURCES.make(family, level, seed)
    assert task.pool is pool_of(TaskId(str(task.id)))
    assert SOURCES.make(task.ref).pool is task.pool


@given(pool=st.sampled_from(list(Pool)), **CELLS)
def test_what_is_drawn_for_a_pool_is_of_no_other(pool: Pool, family: str, level: int, seed: int) -> None:
    task = draw_task(SOURCES, family, level, pool, seed)
    assert task.pool is pool
    assert SOURCES.make(task.ref) == task


def test_the_shares_of_the_pools_are_kept_in_every_family() -> None:
    assert abs(sum(share for _, share in POOL_SHARES) - 1) < 1e-12
    for family in FAMILY_NAMES:
        pools = [SOURCES.make(family, 3, seed).pool for seed in range(2_000)]
        for pool, share in POOL_SHARES:
            # Four standard deviations of a binomial proportion of 2,000.
            assert abs(pools.count(pool) / 2_000 - share) < 4 * (share * (1 - share) / 2_000) ** 0.5
