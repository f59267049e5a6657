"""An ablation as a study: its cells are runs of one config under overrides, found by their content.

`PlannedStudy` is what an ablation under experiments/ is as well, so that the command line can say what a plan can detect before
anything runs. Invariants: a cell's record holds the resolved config and digests of the base and of the files that tasks come
from, and nothing that names the arm, so ablations with equal runs share cells; no two arms of one plan may be equal, which
would be a factor that changes nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from coharness.policy.bases import resolve_base
from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash
from coharness.studies.ablation_config import AblationConfig, load_ablation, run_config, run_values
from coharness.studies.ablation_plan import Plan
from coharness.studies.ablation_summary import Certainty, Readings, Spent, summary_of
from coharness.studies.contract import Cell, Study, StudyError, Summary
from coharness.studies.place import PlanPlace

ARM = "run"
"""The arm in the record of every cell: which one it stands for is the plan's business."""


@runtime_checkable
class PlannedStudy(Study, Protocol):
    """A study whose contrasts are planned."""

    @property
    def plan(self) -> Plan:
        """Arms and contrasts."""
        ...

    @property
    def certainty(self) -> Certainty:
        """Level, power and expected spread."""
        ...

    @property
    def num_blocks(self) -> int:
        """Problems that every arm runs under."""
        ...

    def readings(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Readings:
        """The scores of these cells; arms and seeds without all of their cells are left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationStudy:
    """An ablation that a YAML file describes; see `coharness.studies.contract.Study`."""

    name: str
    config: AblationConfig
    plan: Plan

    @property
    def question(self) -> str:
        """The file's."""
        return self.config.question

    @property
    def num_seeds(self) -> int:
        """The file's."""
        return self.config.seeds

    @property
    def num_blocks(self) -> int:
        """The file's."""
        return len(self.config.blocks)

    @property
    def cell_deadline_s(self) -> float:
        """The file's."""
        return 60 * self.config.cell_minutes

    @property
    def certainty(self) -> Certainty:
        """The file's."""
        return Certainty(alpha=self.config.alpha, power=self.config.power, expected_sd=self.config.expected_sd)

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Episodes of each arm, unless its own overrides say otherwise."""
        if rollouts is not None:
            return {"rollouts": rollouts}
        words = [*self.config.overrides, *(self.config.quick if quick else ())]
        return {"rollouts": run_config(self.config, words).budget.rollouts}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Every arm under every block and seed; seed by seed, so that the first seeds are complete early.

        Raises:
            ConfigError: two arms are the same run.
        """
        bases: dict[str, str] = {}
        made: dict[str, Cell] = {}
        for seed in seeds:
            for block in self.config.blocks:
                for arm in self.plan.arms:
                    values = run_values(self.config, arm, block, seed, quick=quick, rollouts=rollouts)
                    base = values["policy"]["base"]
                    if base not in bases:
                        bases[base] = resolve_base(base).digest
                    cell = Cell(
                        arm=ARM, seed=seed, config={"run": values, "base_digest": bases[base], "files": _files(values)},
                        label=self._label(arm.name, block),
                    )  # fmt: skip
                    twin = made.setdefault(cell.digest, cell)
                    if twin is not cell:
                        raise ConfigError(
                            f"{self.name}: {twin.label} and {cell.label} are the same run; a factor or block that changes "
                            "nothing cannot be tested: mend its overrides or leave it out"
                        )
        return list(made.values())

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Run, or go on with, one run; then read its sealed tasks once."""
        from coharness.studies.ablation_cells import run_to_end

        return run_to_end(cell.config["run"], folder)

    def readings(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Readings:
        """Scores by arm and block, of the seeds that all arms have finished.

        Raises:
            StudyError: cells of one seed and block did not read the same sealed tasks.
        """
        found = {(cell.label, cell.seed): result for cell, result in cells.items()}
        labels = {
            (arm.name, block): self._label(arm.name, block) for arm in self.plan.arms for block in self.config.blocks
        }
        seeds = complete_seeds(labels.values(), found)
        for block in self.config.blocks:
            for seed in seeds:
                if len({content_hash(found[labels[a.name, block], seed]["tasks"]) for a in self.plan.arms}) > 1:
                    raise StudyError(
                        f"arms of seed {seed}, block {block}, read different sealed tasks; they cannot be paired"
                    )
        scores: dict[str, dict[str, list[float]]] = {}
        spent = {}
        for arm in self.plan.arms if seeds else ():
            rows = {b: [found[labels[arm.name, b], seed] for seed in seeds] for b in self.config.blocks}
            scores[arm.name] = {block: [float(row["score"]) for row in of_block] for block, of_block in rows.items()}
            spent[arm.name] = mean_spent([row for of_block in rows.values() for row in of_block])
        return Readings(seeds=seeds, scores=scores, spent=spent)

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Figures, tables and verdicts of all contrasts."""
        return summary_of(self.plan, self.readings(cells), self.certainty)

    def _label(self, arm: str, block: str) -> str:
        return arm if self.num_blocks == 1 else f"{arm} on {block}"


def _files(values: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the files that tasks and rubric are read from; one that is not there is the run's own error."""
    paths = [task["path"] for task in values["tasks"] if "path" in task]
    judge = values["reward"]["judge"]
    paths += [] if judge is None else [judge["rubric"]]
    # A python source is `file.py:function`.
    files = [Path(path if Path(path).is_file() else path.rpartition(":")[0]) for path in paths]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}


def complete_seeds(labels: Iterable[str], found: Mapping[tuple[str, int], object]) -> tuple[int, ...]:
    """Seeds under which every label has a result: arms are compared on these alone."""
    wanted = set(labels)
    seeds = sorted({seed for _, seed in found})
    return tuple(seed for seed in seeds if all((label, seed) in found for label in wanted))


def mean_spent(rows: Sequence[Mapping[str, Any]]) -> Spent:
    """Mean spending of cells with `spent` and `tokens_per_task`."""
    return Spent(
        tokens=float(np.mean([row["spent"]["tokens"] for row in rows])),
        cpu_s=float(np.mean([row["spent"]["cpu_s"] for row in rows])),
        tokens_per_task=float(np.mean([row["tokens_per_task"] for row in rows])),
    )


def place_of(path: Path) -> PlanPlace:
    """Where the ablation of a YAML file has its results.

    Raises:
        ConfigError: the file cannot be read, or holds mistakes.
    """
    config = load_ablation(path)
    assert config.out_dir is not None
    return PlanPlace(file=path.absolute(), folder=Path(config.out_dir))


def open_ablation(place: PlanPlace) -> AblationStudy:
    """The ablation of a place.

    Raises:
        ConfigError: the file cannot be read, or holds mistakes.
    """
    config = load_ablation(place.file)
    return AblationStudy(name=place.name, config=config, plan=config.plan())
