"""One member's course under one objective: rollouts and updates in turn, nothing else.

The parts are those of a run (task sources, rollout worker, replay store, trainer); what is missing on purpose is everything that
would choose between members. Groups are drawn by the version before the one that is trained, as in an asynchronous run whose
rollouts are one update ahead; families and levels are drawn alike.
"""

import math
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coharness.config.schema import RunConfig
from coharness.harness.compile import serving_format
from coharness.loop.build import (
    base_reference,
    build_job_runner,
    build_rollout_worker,
    open_replay_store,
    open_weight_store,
    run_sources,
)
from coharness.loop.context import build_context
from coharness.loop.items import ItemMaker
from coharness.records.ids import ItemId, JobId, PolicyId, derive_seed
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.task import Pool, Task
from coharness.records.training import JobStatus, TrainJob
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.spaces.training_space import initial_hyperparameters, job_hyperparameters, training_space
from coharness.studies.contract import StudyError
from coharness.tasks.draw import draw_task

MEMBER = PolicyId("p0")
BATCH_ITEMS = 256


class Course:
    """A member on its way from the base."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        """Begin in an empty folder."""
        self._config = config
        sources = run_sources(config)
        self._context, self._sources = build_context(config, sources), sources
        self._harness = self._context.h0
        self._worker = build_rollout_worker(config, folder, "course")
        self._replay = open_replay_store(folder, 1)
        self._jobs = build_job_runner(config, folder, self._replay)
        self._weights = open_weight_store(folder)
        self._items = ItemMaker(config, 0)
        space = training_space(config.training)
        self._hyperparameters = initial_hyperparameters(space, config.training, 0, config.seed)
        self.base = PolicyVersion(
            ref=VersionRef(MEMBER, 0), weights=base_reference(config), parents=(), operator="base"
        )
        self.head = self.base
        self.rollouts = 0
        self.metrics: list[dict[str, float]] = []
        "Of each update."
        self._ahead: deque[tuple[WorkItem, ...]] = deque()

    @property
    def num_cells(self) -> int:
        """(family, level) cells that tasks are read in."""
        return len(self._context.space.mix)

    def advance(self) -> None:
        """Draw groups until enough are ahead, and train on the oldest.

        Raises:
            StudyError: an episode or an update failed.
        """
        training = self._config.training
        while len(self._ahead) <= training.max_staleness:
            self._ahead.append(self._practise())
        items = self._ahead.popleft()
        number = len(self.metrics)
        job = TrainJob(
            id=JobId(number),
            start=self.head,
            step=number + 1,
            hyperparameters=job_hyperparameters(training, self._hyperparameters, number),
            items=tuple(item.id for item in items),
            borrowed=(),
            seed=derive_seed("train", self._config.seed, number),
        )
        result = self._jobs.run(job)
        if result.status is not JobStatus.DONE or result.version is None:
            raise StudyError(f"update {number} ended as {result.status}: {result.message}")
        if self.head.weights.uri:
            self._weights.retire([self.head.weights.uri])
        self.head = result.version
        self.metrics.append(dict(result.metrics))

    def read(self, version: PolicyVersion, tasks: Sequence[Task]) -> str:
        """Greedy answers to these tasks, a digit each: 1 where the verifier accepts it."""
        items = tuple(self._item(version, task, Purpose.SEALED, 1, 0.0) for task in tasks)
        correct = self._run(version, items)
        return "".join(str(correct[item.id]) for item in items)

    def tasks(self, pool: Pool, per_cell: int) -> list[Task]:
        """Fixed tasks of every (family, level), the same for all arms and seeds, each once."""
        found: dict[str, Task] = {}
        for family, level in self._context.space.mix:
            for index in range(per_cell):
                task = draw_task(self._sources, family, level, pool, derive_seed(pool, family, level, index))
                found.setdefault(task.id, task)
        return list(found.values())

    def close(self) -> None:
        """End what was started."""
        self._worker.close()
        self._replay.close()

    def _practise(self) -> tuple[WorkItem, ...]:
        training = self._config.training
        rng = np.random.default_rng(derive_seed("practice", self._config.seed, self.rollouts))
        items = []
        for _ in range(training.groups_per_update):
            gene = self._harness.tasks[int(rng.integers(len(self._harness.tasks)))]
            level = int(rng.integers(gene.level_low, gene.level_high + 1))
            task = draw_task(self._sources, gene.family, level, Pool.SEARCH, int(rng.integers(2**62)))
            temperature = self._hyperparameters["temperature"]
            items.append(self._item(self.head, task, Purpose.TRAIN, training.group_size, temperature))
        self._run(self.head, items)
        self.rollouts += len(items) * training.group_size
        return tuple(items)

    def _item(
        self, version: PolicyVersion, task: Task, purpose: Purpose, group_size: int, temperature: float
    ) -> WorkItem:
        return self._items.make(
            version=version.ref,
            harness=self._harness,
            harness_id=self._harness.id,
            task=task,
            answer_format=serving_format(self._harness, self._sources, task.family),
            purpose=purpose,
            group_size=group_size,
            temperature=temperature,
        )

    def _run(self, version: PolicyVersion, items: Sequence[WorkItem]) -> dict[ItemId, int]:
        """Run items, keep the episodes of those that practise; item -> right episodes."""
        correct: dict[ItemId, int] = {}
        for start in range(0, len(items), BATCH_ITEMS):
            part = tuple(items[start : start + BATCH_ITEMS])
            batch = WorkBatch(
                id=start,
                items=part,
                harnesses={self._harness.id: self._harness},
                weights={version.ref: version.weights},
                lease_s=math.inf,
            )
            result, table = self._worker.run(batch)
            failed = [outcome for outcome in result.outcomes if outcome.status is not OutcomeStatus.DONE]
            if failed:
                raise StudyError(f"an episode failed ({failed[0].boundary}): {failed[0].message}")
            if part[0].purpose is Purpose.TRAIN:
                self._replay.append(table)
            correct |= {outcome.item: outcome.num_correct for outcome in result.outcomes}
        return correct
