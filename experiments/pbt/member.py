"""A policy under GRPO as a trainable: what `coharness tune` steps, saves and loads in this study.

A step is one update of a fixed number of episodes, whatever the group size: rollouts by the member's own last version, then GRPO.
Every `updates_per_reading` updates a reading follows: greedy answers to GATE tasks that are the same for all members at that
place of their course, and new at the next one. Its episodes are charged like those of training.

Invariants: a member's course is a pure function of its hyperparameters, its seed and the state it began from, whether it stayed
in memory or was loaded; sealed tasks are read only by a clean run that was told to (`sealed_at`), never while a search decides.

All members of a process share one engine and one trainer (`Workshop`), as members of a run do.
"""

import itertools
import json
import math
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coharness.config.load import load_config
from coharness.config.schema import RunConfig
from coharness.harness.compile import serving_format
from coharness.loop.build import base_reference, build_rollout_worker, build_training_backend, run_sources
from coharness.loop.context import build_context
from coharness.policy.weight_folders import WeightFolders
from coharness.records.codec import decode, encode
from coharness.records.errors import CoharnessError
from coharness.records.ids import ItemId, JobId, PolicyId, canonical_json, derive_seed
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.task import Pool, Task
from coharness.records.training import JobStatus, TrainJob
from coharness.records.work import Outcome, OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.spaces.domain import Value
from coharness.tasks.draw import draw_task

CONFIG = Path(__file__).with_name("config.yaml")
BATCH_ITEMS = 256
STATE = "member.json"
WEIGHTS = "weights"


class MemberError(CoharnessError):
    """An episode or an update of a member failed; its interval counts as failed."""


class Workshop:
    """What all members of a process share: task sources, an engine, a trainer, and the folder of their weights."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="pbt-")
        self.folder = Path(self._scratch.name)
        self.config = RunConfig.model_validate({**run, "run_dir": str(self.folder)})
        self.sources = run_sources(self.config)
        context = build_context(self.config, self.sources)
        self.harness = context.h0
        self.mix = context.space.mix
        "(family, level) cells, all of which count alike."
        self._rollouts = build_rollout_worker(self.config, self.folder, "pbt")
        self.trainer = build_training_backend(self.config, self.folder)
        self.weights = WeightFolders(self.folder)
        self._base = base_reference(self.config)
        self._numbers = itertools.count()

    def newcomer(self) -> PolicyVersion:
        """The base under a name that no member of this process had before."""
        ref = VersionRef(PolicyId(f"m{next(self._numbers)}"), 0)
        return PolicyVersion(ref=ref, weights=self._base, parents=(), operator="base")

    def item(self, number: int, version: PolicyVersion, task: Task, *, seed: int, group: int, heat: float) -> WorkItem:
        """A group of `group` episodes at temperature `heat`, or a greedy answer where that is 0."""
        limits = self.harness.episode.max_tokens, self.config.evaluation.tokens_per_task
        return WorkItem(
            id=ItemId(number),
            version=version.ref,
            harness=self.harness.id,
            task=task.ref,
            format=serving_format(self.harness, self.sources, task.family),
            purpose=Purpose.TRAIN if heat > 0 else Purpose.FILL,
            seed=seed,
            group_size=group,
            temperature=heat,
            max_tokens=min(limits),
        )

    def run(self, version: PolicyVersion, items: Sequence[WorkItem]) -> tuple[list[Outcome], pa.Table]:
        """Outcomes in the order of the items, and all episodes.

        Raises:
            MemberError: an episode failed.
        """
        outcomes: dict[ItemId, Outcome] = {}
        tables = []
        for start in range(0, len(items), BATCH_ITEMS):
            batch = WorkBatch(
                id=start,
                items=tuple(items[start : start + BATCH_ITEMS]),
                harnesses={self.harness.id: self.harness},
                weights={version.ref: version.weights},
                lease_s=math.inf,
            )
            result, table = self._rollouts.run(batch)
            tables.append(table)
            outcomes |= {outcome.item: outcome for outcome in result.outcomes}
        failed = [outcome for outcome in outcomes.values() if outcome.status is not OutcomeStatus.DONE]
        if failed:
            raise MemberError(f"an episode of {version.ref} failed ({failed[0].boundary}): {failed[0].message}")
        return [outcomes[item.id] for item in items], pa.concat_tables(tables)

    def tasks(self, pool: Pool, per_cell: int, *where: str | int) -> list[Task]:
        """So many tasks of every cell, each task once; which ones is a pure function of the arguments."""
        found: dict[str, Task] = {}
        for family, level in self.mix:
            for index in range(per_cell):
                task = draw_task(self.sources, family, level, pool, derive_seed(pool, *where, family, level, index))
                found.setdefault(task.id, task)
        return list(found.values())

    def success(self, version: PolicyVersion, tasks: Sequence[Task]) -> dict[tuple[str, int], float]:
        """Share of these tasks that greedy answers solve, for each cell."""
        outcomes, _ = self.run(
            version, [self.item(i, version, task, seed=0, group=1, heat=0.0) for i, task in enumerate(tasks)]
        )
        solved: dict[tuple[str, int], list[int]] = defaultdict(list)
        for task, outcome in zip(tasks, outcomes, strict=True):
            solved[task.family, task.level].append(outcome.num_correct)
        return {cell: float(np.mean(values)) for cell, values in solved.items()}


@lru_cache(maxsize=1)
def _workshop(run: str) -> Workshop:
    return Workshop(json.loads(run))


def workshop(run: Mapping[str, Any]) -> Workshop:
    """The workshop of this process for a run's config; one at a time, since engine and trainer hold weights in memory."""
    return _workshop(canonical_json(run))


def forget_workshop() -> None:
    """Let go of this process's workshop; members that are still there keep it alive."""
    _workshop.cache_clear()


def plain_run() -> dict[str, Any]:
    """config.yaml as JSON values, without the folder, which is each process's own."""
    config = load_config(CONFIG).model_dump(mode="json")
    del config["run_dir"]
    return config


class GrpoMember:
    """A member; see `coharness.tune.trainable` for the methods.

    Args:
        hyperparameters: `learning_rate`, `kl_coefficient`, `group_size` and `temperature`, which may move; and the study's
            constants `run` (a run's config as JSON values; config.yaml where left out), `updates_per_reading`,
            `reading_per_cell` (tasks of each cell in a reading), `reading_seed` and `sealed_at` (the update after which sealed
            tasks are read; 0 for never).
        seed: of the tasks it practises on and of its sampling noise.
    """

    def __init__(self, hyperparameters: Mapping[str, Value], seed: int) -> None:
        self._shop = workshop(hyperparameters.get("run") or plain_run())
        self._hyperparameters = dict(hyperparameters)
        self._seed = seed
        self._head = self._shop.newcomer()
        self._updates = 0
        self._spent = 0
        "Episodes since the last reading, which ends an interval."

    def apply(self, hyperparameters: Mapping[str, Value]) -> Mapping[str, Value]:
        """Put these in force; they act from the next update on, which checks what the trainer used."""
        training = self._shop.config.training
        episodes = training.group_size * training.groups_per_update
        group = hyperparameters["group_size"]
        if not (isinstance(group, int) and group >= 2 and episodes % group == 0):
            raise ValueError(
                f"group_size: got {group!r}, expected a whole number of 2 or more that divides the "
                f"{episodes} episodes of an update"
            )
        self._hyperparameters = dict(hyperparameters)
        return dict(self._hyperparameters)

    def reseed(self, seed: int) -> None:
        """Practise on other tasks with other noise from now on."""
        self._seed = seed

    def step(self) -> Mapping[str, float]:
        """One update, and a reading where one is due; only then there is a `score`.

        Raises:
            MemberError: an episode failed, or the update met something that is not finite.
        """
        metrics = self._update()
        setting = self._hyperparameters
        number, rest = divmod(self._updates, setting["updates_per_reading"])
        if rest == 0:
            tasks = self._shop.tasks(Pool.GATE, setting["reading_per_cell"], setting["reading_seed"], number)
            metrics |= {
                "score": _mean(self._shop.success(self._head, tasks)),
                "episodes": float(self._spent + len(tasks)),
            }
            self._spent = 0
        if self._updates == setting["sealed_at"]:
            metrics["sealed"] = _mean(self.sealed())
        return metrics

    def sealed(self) -> dict[tuple[str, int], float]:
        """Greedy success on the sealed tasks of each cell, the same tasks for everybody."""
        tasks = self._shop.tasks(Pool.SEALED, self._shop.config.evaluation.sealed_per_cell)
        return self._shop.success(self._head, tasks)

    def save(self, folder: Path) -> None:
        """Write the head's weights with its optimizer, and where the member stands."""
        uri = self._head.weights.uri
        if uri:
            shutil.copytree(self._shop.folder / uri, folder / WEIGHTS)
        state = {
            "version": encode(PolicyVersion, self._head),
            "updates": self._updates,
            "seed": self._seed,
            "spent": self._spent,
        }
        (folder / STATE).write_text(json.dumps(state, allow_nan=False), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Become what was saved, under a name of its own."""
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        saved: PolicyVersion = decode(PolicyVersion, state["version"])
        before, newcomer = self._head, self._shop.newcomer()
        if saved.weights.uri:
            ref = VersionRef(newcomer.ref.policy, saved.ref.step)
            uri = f"weights/{ref.policy}/v{ref.step}"
            shutil.copytree(folder / WEIGHTS, self._shop.folder / uri)
            newcomer = replace(saved, ref=ref, weights=replace(saved.weights, uri=uri))
        self._head, self._updates = newcomer, state["updates"]
        self._seed, self._spent = state["seed"], state["spent"]
        self._retire(before)

    def _update(self) -> dict[str, float]:
        shop, setting, training = self._shop, self._hyperparameters, self._shop.config.training
        group = int(setting["group_size"])
        rng = np.random.default_rng(derive_seed("practice", self._seed, self._updates))
        items = []
        for number in range(training.group_size * training.groups_per_update // group):
            family, level = shop.mix[int(rng.integers(len(shop.mix)))]
            task = draw_task(shop.sources, family, level, Pool.SEARCH, int(rng.integers(2**62)))
            noise = derive_seed("item", self._seed, self._updates, number)
            items.append(
                shop.item(number, self._head, task, seed=noise, group=group, heat=float(setting["temperature"]))
            )
        outcomes, table = shop.run(self._head, items)
        job = TrainJob(
            id=JobId(self._updates),
            start=self._head,
            step=self._updates + 1,
            hyperparameters={name: float(setting[name]) for name in ("learning_rate", "kl_coefficient")},
            items=tuple(item.id for item in items),
            borrowed=(),
            seed=derive_seed("train", self._seed, self._updates),
        )
        result = shop.trainer.train(job, table, table.slice(0, 0))
        if result.status is not JobStatus.DONE or result.version is None:
            raise MemberError(f"update {self._updates} of {self._head.ref} ended as {result.status}: {result.message}")
        for name, wanted in job.hyperparameters.items():
            if result.metrics[f"hyperparameter/{name}"] != wanted:
                got = result.metrics[f"hyperparameter/{name}"]
                raise MemberError(f"the trainer used {name}={got!r}, the member's is {wanted!r}")
        self._retire(self._head)
        self._head = result.version
        self._updates += 1
        self._spent += len(items) * group
        return {
            "updates": float(self._updates),
            "practice": sum(outcome.num_correct for outcome in outcomes) / (len(items) * group),
            "kl": result.metrics.get("kl/base", 0.0),
            "entropy": result.metrics.get("entropy/mean", 0.0),
            "flat_groups": result.metrics["groups/zero_spread"] / len(items),
        }

    def _retire(self, version: PolicyVersion) -> None:
        if version.weights.uri:
            self._shop.weights.retire([version.weights.uri])


def _mean(by_cell: Mapping[tuple[str, int], float]) -> float:
    return float(np.mean(list(by_cell.values())))
