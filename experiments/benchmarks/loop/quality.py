"""What each side's weights answer: greedy, on the same sealed tasks, by one evaluator for both and for the base.

Weights are read as a base of their own, so that nothing of the loop that made them takes part.
"""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coharness.config.schema import RunConfig
from coharness.harness.compile import serving_format
from coharness.loop.build import base_reference, build_rollout_worker, run_sources
from coharness.loop.context import build_context
from coharness.loop.items import ItemMaker
from coharness.records.ids import PolicyId, derive_seed
from coharness.records.policy import VersionRef
from coharness.records.task import Pool, Task
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch
from coharness.studies.contract import StudyError
from coharness.tasks.draw import draw_task
from experiments.benchmarks.loop.arms import LEARNING, run_config
from experiments.benchmarks.loop.sides import compare

PER_CELL = 50
"""Sealed tasks of each family and level."""
BATCH_ITEMS = 256
COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def learn(comparison: Any, *, seed: int, folder: Path, base: Path) -> dict[str, Any]:
    """Both sides learn, then both and the base are read: right answers of each, a digit a task."""
    found = compare(comparison, seed=seed, folder=folder)
    ours, theirs = comparison.sides
    heads = {
        "base": base,
        ours.name: _as_base(Path(found[ours.name][0]["head"]), base, folder / "read-ours"),
        theirs.name: _as_base(folder / f"run-0-{theirs.name}" / "weights", base, folder / "read-theirs"),
    }
    return {**found, "correct": {name: read(path, seed, folder) for name, path in heads.items()}}


def read(base: Path, seed: int, folder: Path) -> str:
    """Greedy answers to the sealed tasks, a digit each: 1 where the verifier accepts it."""
    side = LEARNING.sides[0]
    config = RunConfig.model_validate(run_config(LEARNING, side, seed=seed, run_dir=folder, base=str(base)))
    sources = run_sources(config)
    context = build_context(config, sources)
    tasks = _tasks(context.space.mix, sources)
    version, weights = VersionRef(PolicyId("p0"), 0), base_reference(config)
    worker = build_rollout_worker(config, folder, "reader")
    make = ItemMaker(config, 0)
    items = [
        make.make(
            version=version,
            harness=context.h0,
            harness_id=context.h0.id,
            task=task,
            answer_format=serving_format(context.h0, sources, task.family),
            purpose=Purpose.SEALED,
        )
        for task in tasks
    ]
    digits: list[str] = []
    try:
        for start in range(0, len(items), BATCH_ITEMS):
            part = tuple(items[start : start + BATCH_ITEMS])
            batch = WorkBatch(
                id=start,
                items=part,
                harnesses={context.h0.id: context.h0},
                weights={version: weights},
                lease_s=math.inf,
            )
            result, _ = worker.run(batch)
            outcomes = {outcome.item: outcome for outcome in result.outcomes}
            if failed := [o for o in result.outcomes if o.status is not OutcomeStatus.DONE]:
                raise StudyError(f"an episode failed ({failed[0].boundary}): {failed[0].message}")
            digits += [str(outcomes[item.id].num_correct) for item in part]
    finally:
        worker.close()
    return "".join(digits)


def _tasks(mix: Sequence[tuple[str, int]], sources: Any) -> list[Task]:
    found: dict[str, Task] = {}
    for family, level in mix:
        for index in range(PER_CELL):
            seed = derive_seed("loop quality", family, level, index)
            task = draw_task(sources, family, level, Pool.SEALED, seed)
            found.setdefault(task.id, task)
    return list(found.values())


def _as_base(weights: Path, base: Path, place: Path) -> Path:
    """A folder in transformers' format with these weights and the base's configuration and tokenizer."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in COPIED:
        shutil.copy(base / name, place / name)
    shutil.copy(weights / "model.safetensors", place / "model.safetensors")
    return place
