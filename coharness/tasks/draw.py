"""Drawing a task that belongs to a given pool: a pure function of (family, level, pool, seed).

Pool membership is a hash of the task, so a draw walks a stream of seeds derived from the given one until a task falls into
the pool; a seed for which the source fails to make a task is in no pool. A finite cell whose pool is small or empty is then
read from its index, so that a draw always ends.
"""

from coharness.records.errors import TaskError
from coharness.records.ids import derive_seed
from coharness.records.task import Pool, Task
from coharness.tasks.sources import TaskSources

_TRIES = 256
"""The smallest pool holds 1 task in 20, so 256 tries miss it with a chance of 2e-6; then a finite cell is indexed."""
_MAX_TRIES = 20_000


def draw_task(sources: TaskSources, family: str, level: int, pool: Pool, seed: int) -> Task:
    """A task of `pool`, uniform over that pool's tasks of the cell as `seed` varies.

    Raises:
        TaskError: the family or level does not exist, or the cell has no task in this pool.
    """
    sources.check_cell(family, level)
    for attempt in range(_MAX_TRIES):
        task = sources.try_make(family, level, derive_seed("draw", family, level, pool, seed, attempt))
        if task is not None and task.pool is pool:
            return task
        if attempt == _TRIES:
            seeds = pool_seeds(sources, family, level, pool)
            if seeds:
                return sources.make(family, level, seeds[derive_seed("draw", seed) % len(seeds)])
            if seeds is not None:
                break
    count = sources.families[family].num_tasks[level - 1]
    raise TaskError(
        f"family {family}, level {level} has no task in the pool {pool} "
        f"({'none found in ' + str(_MAX_TRIES) + ' draws' if count is None else str(count) + ' tasks in all'}); "
        "give the source more rows or fewer levels, or do not use this cell for that purpose"
    )


def pool_seeds(sources: TaskSources, family: str, level: int, pool: Pool) -> tuple[int, ...] | None:
    """Seeds of all tasks of `pool` in a finite cell, each task once; None where the cell is not counted."""
    pools = sources.cell_pools(family, level)
    return None if pools is None else pools[pool]


def pool_size(sources: TaskSources, family: str, level: int, pool: Pool) -> int | None:
    """Number of distinct tasks of `pool` in a finite cell, None where the cell is not counted."""
    seeds = pool_seeds(sources, family, level, pool)
    return None if seeds is None else len(seeds)
