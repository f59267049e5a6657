from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from coharness.config.schema import BuiltinTasks, JsonlTasks
from coharness.records.errors import Boundary, BoundaryError, TaskError
from coharness.records.task import POOL_SHARES, FamilySpec, Pool, Task
from coharness.tasks import TaskSources, build_sources, draw_task, pool_seeds, pool_size
from coharness.tasks.builtin import BuiltinSource


def rows(tmp_path: Path, number: int) -> TaskSources:
    lines = [f'{{"question": "what is row {i}?", "answer": "{i}"}}' for i in range(number)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    return build_sources([JsonlTasks(type="jsonl", path="rows.jsonl", family="rows")], tmp_path)


class FailsOnOddSeeds:
    """The built-in families, but every odd seed breaks."""

    families: tuple[FamilySpec, ...] = BuiltinSource(("sort",)).families

    def make(self, family: str, level: int, seed: int) -> Task:
        if seed % 2:
            raise BoundaryError(Boundary.TASK, "odd")
        return BuiltinSource(("sort",)).make(family, level, seed)


def test_a_draw_is_of_its_pool_and_a_function_of_its_arguments() -> None:
    sources = build_sources([BuiltinTasks(families=("parity",))], Path())
    for pool in Pool:
        tasks = [draw_task(sources, "parity", 3, pool, seed) for seed in range(30)]
        assert all(task.pool is pool for task in tasks)
        assert tasks == [draw_task(sources, "parity", 3, pool, seed) for seed in range(30)]
        assert len({task.id for task in tasks}) > 25


def test_a_pool_of_a_finite_cell_is_drawn_evenly(tmp_path: Path) -> None:
    sources = rows(tmp_path, 60)
    size = pool_size(sources, "rows", 1, Pool.GATE)
    assert size
    counts = Counter(draw_task(sources, "rows", 1, Pool.GATE, seed).id for seed in range(100 * size))
    assert len(counts) == size
    assert max(counts.values()) < 150


def test_pools_of_a_finite_cell_share_out_its_tasks(tmp_path: Path) -> None:
    sources = rows(tmp_path, 2_000)
    members = {pool: pool_seeds(sources, "rows", 1, pool) for pool in Pool}
    assert sorted(seed for seeds in members.values() for seed in seeds or ()) == list(range(2_000))
    for pool, share in POOL_SHARES:
        seeds = members[pool]
        assert seeds is not None
        assert abs(len(seeds) / 2_000 - share) < 0.03
        assert all(sources.make("rows", 1, seed).pool is pool for seed in seeds)


def test_an_empty_pool_is_an_error_that_says_so(tmp_path: Path) -> None:
    sources = rows(tmp_path, 1)
    full = sources.make("rows", 1, 0).pool
    empty = next(pool for pool in Pool if pool is not full)
    assert pool_size(sources, "rows", 1, empty) == 0
    with pytest.raises(TaskError, match=f"rows, level 1 has no task in the pool {empty} .1 tasks in all"):
        draw_task(sources, "rows", 1, empty, 0)


def test_a_pool_that_draws_miss_is_found_by_its_index(tmp_path: Path) -> None:
    # With 40 rows, three cells in a thousand draws go 256 tries without the one task of a pool.
    sources = rows(tmp_path, 400)
    pool, seeds = min(
        ((pool, pool_seeds(sources, "rows", 1, pool) or ()) for pool in Pool), key=lambda pair: len(pair[1])
    )
    spec = sources.families["rows"]
    rare = TaskSources([OnlyOne(sources, spec, seeds[0])])
    assert pool_size(rare, "rows", 1, pool) == 1
    assert draw_task(rare, "rows", 1, pool, 5).ref == replace(sources.make("rows", 1, seeds[0]).ref, seed=seeds[0])


class OnlyOne:
    """A cell of 400 in which one task alone is in its pool: the others repeat a task of another pool."""

    def __init__(self, sources: TaskSources, spec: FamilySpec, seed: int) -> None:
        self._sources, self._seed = sources, seed
        pool = sources.make("rows", 1, seed).pool
        self._other = next(s for s in range(400) if sources.make("rows", 1, s).pool is not pool)
        self.families = (spec,)

    def make(self, family: str, level: int, seed: int) -> Task:
        place = seed % 400
        return replace(self._sources.make(family, level, place if place == self._seed else self._other), seed=place)


def test_a_recipe_that_cannot_be_made_is_in_no_pool() -> None:
    sources = TaskSources([FailsOnOddSeeds()])
    assert all(draw_task(sources, "sort", 2, Pool.GATE, seed).seed % 2 == 0 for seed in range(20))
    seeds = [seed for pool in Pool for seed in pool_seeds(sources, "sort", 1, pool) or ()]
    assert sorted(seeds) == list(range(0, 10_000, 2))


def test_an_unknown_family_or_level_is_named() -> None:
    sources = build_sources([BuiltinTasks()], Path())
    with pytest.raises(TaskError, match="did you mean parity"):
        draw_task(sources, "partiy", 1, Pool.SEARCH, 0)
    with pytest.raises(TaskError, match="levels 1 to 8, got level 9"):
        pool_size(sources, "parity", 9, Pool.SEARCH)
    assert pool_size(sources, "parity", 8, Pool.SEARCH) is None
