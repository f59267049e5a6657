"""What does co-evolution lose without each of its parts?

The plan stands in ablation.yaml. Every cell is a run of the co-evolution study under other overrides, so that study carries all
of them out and keeps their folders; an arm whose run is one of its own, but for the vote of the base, is its very cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coharness.config.load import load_config
from coharness.policy.bases import resolve_base
from coharness.studies.ablation_config import AblationConfig, load_ablation
from coharness.studies.ablation_plan import Arm, Plan
from coharness.studies.ablation_study import complete_seeds, mean_spent
from coharness.studies.ablation_summary import Certainty, Readings, summary_of
from coharness.studies.contract import Cell, StudyError, Summary
from experiments.coevolution.curves import success_rate
from experiments.coevolution.study import ARMS, CONFIG, QUICK, run_config
from experiments.coevolution.study import STUDY as COEVOLUTION

PLAN = Path(__file__).with_name("ablation.yaml")
QUICK_ARMS = ("full", "without moving hyperparameters")
"""Two cells are what fits into a smoke; the first is that of the co-evolution study's smoke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoevolutionAblation:
    """The plan over the co-evolution study's cells; see `coharness.studies.ablation_study.PlannedStudy`."""

    name: str = "ablation"
    config: AblationConfig = field(default_factory=lambda: load_ablation(PLAN))
    num_blocks: int = 1
    cell_deadline_s: float = COEVOLUTION.cell_deadline_s

    @property
    def question(self) -> str:
        """The plan's."""
        return self.config.question

    @property
    def num_seeds(self) -> int:
        """The plan's."""
        return self.config.seeds

    @property
    def plan(self) -> Plan:
        """One part out at a time, and the controls."""
        return self.config.plan()

    @property
    def certainty(self) -> Certainty:
        """The plan's."""
        return Certainty(alpha=self.config.alpha, power=self.config.power, expected_sd=self.config.expected_sd)

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Episodes of each arm: those of the co-evolution study."""
        return COEVOLUTION.budget(quick=quick, rollouts=rollouts)

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Each arm under each seed; seed by seed, so that the first seeds are complete early."""
        budget = int(self.budget(quick=quick, rollouts=rollouts)["rollouts"])
        base = resolve_base(load_config(CONFIG).policy.base).digest
        arms = [arm for arm in self.plan.arms if not quick or arm.name in QUICK_ARMS]
        return [
            _cell(arm, seed, budget, base, known, quick=quick)
            for seed in seeds
            for known in [{name: run_config(name, seed, rollouts=budget, quick=quick) for name in ARMS}]
            for arm in arms
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """As the co-evolution study does, which owns the cells."""
        return COEVOLUTION.run_cell(cell, folder)

    def readings(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Readings:
        """J of each arm's last champion on the seeds that all these arms have finished.

        Raises:
            StudyError: arms of one seed did not read the same sealed tasks.
        """
        found = {(cell.label, cell.seed): result for cell, result in cells.items()}
        arms = [arm.name for arm in self.plan.arms if any(label == arm.name for label, _ in found)]
        seeds = complete_seeds(arms, found)
        for seed in seeds:
            first = found[arms[0], seed]["tasks"]
            for arm in arms:
                if found[arm, seed]["tasks"] != first:
                    raise StudyError(
                        f"{arm}, seed {seed}, read other sealed tasks than {arms[0]}; they cannot be paired"
                    )
        rows = {arm: [found[arm, seed] for seed in seeds] for arm in arms} if seeds else {}
        return Readings(
            seeds=seeds,
            scores={
                arm: {"all": [success_rate(row["tasks"], row["champion"]["correct"]) for row in of_arm]}
                for arm, of_arm in rows.items()
            },
            spent={
                arm: mean_spent(
                    [{"spent": row["spent"], "tokens_per_task": row["champion"]["tokens_per_task"]} for row in of_arm]
                )
                for arm, of_arm in rows.items()
            },
        )

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Contrasts with intervals, corrected tests, and what may be said."""
        return summary_of(self.plan, self.readings(cells), self.certainty)


def _cell(
    arm: Arm, seed: int, rollouts: int, base: str, known: Mapping[str, Mapping[str, Any]], *, quick: bool
) -> Cell:
    """The cell of an arm: the co-evolution study's own where it makes the same run."""
    words = (*arm.overrides, *(QUICK if quick else ()), f"seed={seed}", f"budget.rollouts={rollouts}")
    values: dict[str, Any] = load_config(CONFIG, words).model_dump(mode="json")
    del values["run_dir"]
    shared = next((name for name, other in known.items() if _without_vote(other) == _without_vote(values)), None)
    return Cell(
        arm=shared or f"ablation: {arm.name}",
        seed=seed,
        config={"run": values if shared is None else known[shared], "base_digest": base},
        owner=COEVOLUTION.name,
        label=arm.name,
    )


def _without_vote(values: Mapping[str, Any]) -> dict[str, Any]:
    """A run's config without the vote of the base, which is read after the run and changes nothing in it."""
    return {**values, "evaluation": {**values["evaluation"], "best_of_k": None}}


STUDY = CoevolutionAblation()
