"""The training loop of a judge: small jobs to a trainer, one optimizer step each, until the epochs are over.

Any backend behind `records.protocols.Trainer` will do. Invariants: a row is in one job an epoch; the order is a function of the
seed; what is not the last version is retired as soon as its successor is published.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from coharness.records.errors import Boundary, BoundaryError, ConfigError
from coharness.records.ids import ItemId, JobId, derive_seed
from coharness.records.policy import PolicyVersion
from coharness.records.protocols import Trainer, WeightStore
from coharness.records.training import JobStatus, TrainJob

DECAY_SHARE = 1 / 3
"""Last part of the training in which the learning rate falls to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How long and how fast.

    Raises:
        ConfigError: a setting that trains nothing.
    """

    epochs: int = 2
    rows_per_step: int = 16
    learning_rate: float = 3e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or not 2 <= self.rows_per_step <= 64 or not self.learning_rate > 0:
            raise ConfigError(
                f"got epochs={self.epochs}, rows_per_step={self.rows_per_step}, learning_rate={self.learning_rate:g}; expected "
                "epochs of 1 or more, 2 to 64 rows a step, and a rate above 0"
            )


OnStep = Callable[[int, int, Mapping[str, float]], None]
"""(step, steps, metrics) -> None."""


def fit(
    trainer: Trainer,
    start: PolicyVersion,
    episodes: pa.Table,
    recipe: Recipe,
    *,
    store: WeightStore,
    on_step: OnStep | None = None,
) -> PolicyVersion:
    """Train from `start`; returns the last version.

    Args:
        trainer: Whose objective fits the episodes.
        start: Where to begin; its folder is left alone.
        episodes: Of `judge_episodes`.
        recipe: How long and how fast.
        store: Where the trainer publishes.
        on_step: Told after each step.

    Raises:
        ConfigError: there is nothing to train on.
        BoundaryError: a job failed, or its update was not finite; names the boundary.
    """
    plan = _plan(episodes, recipe)
    if not plan:
        raise ConfigError("the examples leave nothing to train on; give more, or smaller shares for the other splits")
    version, empty = start, episodes.slice(0, 0)
    for number, rows in enumerate(plan, start=1):
        own = episodes.take(pa.array(rows))
        left = (len(plan) + 1 - number) / (DECAY_SHARE * len(plan) + 1)
        job = TrainJob(
            id=JobId(number),
            start=version,
            step=start.ref.step + number,
            hyperparameters={"learning_rate": recipe.learning_rate * min(1.0, left)},
            items=tuple(map(ItemId, sorted(set(own.column("item").to_pylist())))),
            borrowed=(),
            seed=derive_seed("judge", recipe.seed, number),
        )
        result = trainer.train(job, own, empty)
        if result.status is not JobStatus.DONE or result.version is None:
            raise BoundaryError(
                result.boundary or Boundary.TRAINING,
                f"step {number} of {len(plan)} of the judge's training ended as {result.status}: {result.message}",
            )
        if version is not start:
            store.retire([version.weights.uri])
        version = result.version
        if on_step is not None:
            on_step(number, len(plan), result.metrics)
    return version


def _plan(episodes: pa.Table, recipe: Recipe) -> list[list[int]]:
    """Row numbers of each step; the rows of an item stay together."""
    by_item: dict[int, list[int]] = {}
    for row, item in enumerate(episodes.column("item").to_pylist()):
        by_item.setdefault(item, []).append(row)
    items = list(by_item.values())
    if not items:
        return []
    per_step = max(1, recipe.rows_per_step // max(map(len, items)))
    steps = max(1, round(len(items) / per_step))
    plan = []
    for epoch in range(recipe.epochs):
        order = np.random.default_rng(derive_seed("judge order", recipe.seed, epoch)).permutation(len(items))
        plan += [[row for item in part for row in items[item]] for part in np.array_split(order, steps)]
    return plan
