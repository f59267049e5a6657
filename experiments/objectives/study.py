"""Does every objective teach the tiny base something, at its vetted settings, without costing what the base knew?

Owns the arms and how one cell is run; what the cells say together is in `summary`. A cell is one member's `Course` from the base
under one objective; it takes a few minutes and begins anew where it was interrupted.
"""

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.config.load import load_config
from coharness.config.schema import RunConfig
from coharness.policy.bases import resolve_base
from coharness.records.task import Pool
from coharness.studies.contract import Cell, Summary
from experiments.objectives.course import Course
from experiments.objectives.summary import summarise

logger = logging.getLogger(__name__)

CONFIG = Path(__file__).with_name("config.yaml")
READINGS = 8
"""Points of a curve after its first."""
EPISODES_AN_UPDATE = 256
SINGLE = ("training.group_size=1", f"training.groups_per_update={EPISODES_AN_UPDATE}")
"""Supervision looks at tasks, not at attempts: one episode of each of eight times as many."""

ARMS: Mapping[str, tuple[str, ...]] = {
    "sft": ("training.objective=sft", *SINGLE),
    "sft_successes": ("training.objective=sft", "training.sft_targets=successes"),
    "sft+grpo": ("training.objective=sft+grpo",),
    "dpo": ("training.objective=dpo",),
    "ipo": ("training.objective=ipo",),
    "kto": ("training.objective=kto",),
    "grpo": ("training.objective=grpo",),
    "dr_grpo": ("training.objective=dr_grpo",),
    "dapo": ("training.objective=dapo",),
    "gspo": ("training.objective=gspo",),
    "cispo": ("training.objective=cispo",),
    "ppo": ("training.objective=ppo",),
    "sft_dpo_grpo": (
        "training.objective=grpo",
        "training.schedule=[{objective: sft, updates: 34}, {objective: dpo, updates: 33}]",
    ),
}
"""Arm -> what it lays over config.yaml; all else is at its default."""

QUICK_ARMS = ("sft", "dpo", "ppo")
QUICK_ROLLOUTS = 192
QUICK: tuple[str, ...] = (
    "tasks=[{type: builtin, max_level: 2, families: [parity, maximum]}]",
    "harness.level_high=2",
    "training.groups_per_update=12",
    "evaluation.track_tasks=8",
    "evaluation.sealed_per_cell=8",
)
"""What the smoke lays over every arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivesStudy:
    """Thirteen objectives from the same base under the same seeds; see `coharness.studies.contract.Study`."""

    name: str = "objectives"
    question: str = "Does every objective teach the tiny base something without costing what it knew?"
    num_seeds: int = 3
    cell_deadline_s: float = 4 * 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Training episodes of each arm."""
        own = QUICK_ROLLOUTS if quick else load_config(CONFIG).budget.rollouts
        return {"rollouts": own if rollouts is None else rollouts}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Each arm under each seed; seed by seed, so that the first seeds are complete early."""
        budget = int(self.budget(quick=quick, rollouts=rollouts)["rollouts"])
        base = resolve_base(load_config(CONFIG).policy.base).digest
        return [
            Cell(
                arm=arm,
                seed=seed,
                config={"run": run_config(arm, seed, rollouts=budget, quick=quick), "base_digest": base},
            )
            for seed in seeds
            for arm in (QUICK_ARMS if quick else ARMS)
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Train one member from the base, reading TRACK tasks on the way and the sealed ones once, at the end."""
        run_dir = folder / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.mkdir(parents=True)
        config = RunConfig.model_validate({**cell.config["run"], "run_dir": str(run_dir)})
        course = Course(config, run_dir)
        try:
            return travel(course, config)
        finally:
            course.close()

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Sealed accuracy, what became of the easy cells, and curves; see `summary`."""
        return summarise(cells)


def travel(course: Course, config: RunConfig) -> dict[str, Any]:
    """A whole course and what is read of it, as JSON values; correctness of tasks is a text of 0 and 1 in their order."""
    cpu = time.process_time()
    budget, evaluation = config.budget.rollouts, config.evaluation
    sealed = course.tasks(Pool.SEALED, evaluation.sealed_per_cell)
    track = course.tasks(Pool.TRACK, max(evaluation.track_tasks // course.num_cells, 1))
    curve: list[dict[str, Any]] = [{"rollouts": 0, "correct": course.read(course.base, track)}]
    while course.rollouts < budget:
        course.advance()
        if course.rollouts * READINGS >= len(curve) * budget:
            curve.append({"rollouts": course.rollouts, "correct": course.read(course.head, track)})
            right = curve[-1]["correct"].count("1")
            logger.info("%d of %d rollouts, %d of %d right", course.rollouts, budget, right, len(track))
    return {
        "tasks": [[task.family, task.level, task.id] for task in sealed],
        "track": [[task.family, task.level, task.id] for task in track],
        "base": course.read(course.base, sealed),
        "end": course.read(course.head, sealed),
        "curve": curve,
        "metrics": {name: round(value, 6) for name, value in course.metrics[-1].items()},
        "updates": len(course.metrics),
        "cpu_s": time.process_time() - cpu,
    }


def run_config(arm: str, seed: int, *, rollouts: int, quick: bool) -> dict[str, Any]:
    """The resolved config of one cell as JSON values, but for the run's folder, which is the cell's."""
    words = (*ARMS[arm], *(QUICK if quick else ()), f"seed={seed}", f"budget.rollouts={rollouts}")
    config = load_config(CONFIG, words).model_dump(mode="json")
    del config["run_dir"]
    return config


STUDY = ObjectivesStudy()
