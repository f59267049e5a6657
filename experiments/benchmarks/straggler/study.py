"""What one slow rollout worker costs the others: the real core and engine, workers in virtual time.

A worker waits for another only where the core holds work back: a member that waits for its own slow group, a test whose pairs are
not all there. That is what is measured; machines and networks are not.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.loop.build import run_sources
from coharness.loop.core import Evolution
from coharness.loop.engine import Engine
from coharness.loop.journal import JournalWriter
from coharness.loop.run_dir import RunDir
from coharness.records import events as ev
from coharness.records.errors import ConfigError
from coharness.stats.paired import paired_t_interval
from coharness.studies.contract import Cell, Figure, Summary, Table
from coharness.testing.runs import simulated_config
from coharness.testing.simulated import SIMULATED_BASE, SimulatedFleet
from coharness.testing.timed import TimedFleet

ITEM_S = 0.01
JOB_S = 0.2
SLOWDOWN = 4.0
NUM_WORKERS = 3
NUM_TRAINERS = 2
ARMS: Mapping[str, tuple[float, ...]] = {
    "even": (ITEM_S,) * NUM_WORKERS,
    "one_slow": (ITEM_S,) * (NUM_WORKERS - 1) + (ITEM_S * SLOWDOWN,),
}
"""Arm -> seconds an item takes each rollout worker; the last one may be slow."""
ROLLOUTS = 12_000
QUICK_ROLLOUTS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerStudy:
    """Even workers against the same with one slowed, seed by seed; see `coharness.studies.contract.Study`."""

    name: str = "benchmarks/straggler"
    question: str = f"What does a rollout worker that is {SLOWDOWN:.0f}x slower cost the others?"
    num_seeds: int = 10
    cell_deadline_s: float = 600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Episodes of a run."""
        if rollouts is not None and rollouts < 1_000:
            raise ConfigError(f"--rollouts {rollouts} is too short to measure a rate; expected 1,000 or more")
        return {"rollouts": rollouts or (QUICK_ROLLOUTS if quick else ROLLOUTS)}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Both arms under each seed."""
        budget = int(self.budget(quick=quick, rollouts=rollouts)["rollouts"])
        return [
            Cell(
                arm=arm,
                seed=seed,
                config={"rollouts": budget, "item_s": list(speeds), "job_s": [JOB_S] * NUM_TRAINERS},
            )
            for seed in seeds
            for arm, speeds in ARMS.items()
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """One run in virtual time: what each worker did."""
        shutil.rmtree(folder / "run", ignore_errors=True)
        config = simulated_config(
            folder / "run",
            seed=cell.seed,
            budget={"rollouts": cell.config["rollouts"]},
            training={"groups_per_update": 64},
            evolution={"assess_every": 40, "merge_every": 60, "propose_every": 40},
        )
        run = RunDir.create(config)
        epoch = run.acquire_lease()
        fleet = TimedFleet(
            SimulatedFleet(seed=cell.seed), rollouts=cell.config["item_s"], trainers=cell.config["job_s"]
        )
        first = ev.Started(
            run_id=run.run_id,
            seed=cell.seed,
            config=json.loads(config.model_dump_json()),
            base=SIMULATED_BASE,
            code_digest="simulated",
        )
        core = Evolution(config, run_sources(config))
        Engine(core, fleet, JournalWriter(run.journal_dir, epoch), run, fleet, epoch, first).run()
        return {
            "seconds": fleet.monotonic(),
            "workers": [[w.name, w.num_units, w.busy_s] for w in fleet.workers if not w.is_trainer],
        }

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Share of the other workers' rate that is lost, a pair a seed."""
        by_arm = {arm: {c.seed: r for c, r in cells.items() if c.arm == arm} for arm in ARMS}
        seeds = sorted(by_arm["even"].keys() & by_arm["one_slow"].keys())
        costs = [1 - _rate(by_arm["one_slow"][seed]) / _rate(by_arm["even"][seed]) for seed in seeds]
        interval = paired_t_interval(costs) if len(costs) > 1 else None
        rows = tuple(
            (seed, _rate(by_arm["even"][seed]), _rate(by_arm["one_slow"][seed]), cost)
            for seed, cost in zip(seeds, costs, strict=True)
        )
        return Summary(
            figures=(
                Figure(
                    name="others/cost",
                    value=sum(costs) / len(costs),
                    low=interval.low if interval else None,
                    high=interval.high if interval else None,
                    unit="share of the rate",
                    seeds=tuple(seeds),
                    note="Two-sided 95 % t interval over seeds; negative where the slow worker's absence left more work.",
                ),
            ),
            tables=(
                Table(
                    title="Items a virtual second of each other worker",
                    columns=("seed", "all even", f"one {SLOWDOWN:.0f}x slower", "cost"),
                    rows=rows,
                ),
            ),
        )


def _rate(result: Mapping[str, Any]) -> float:
    """Items a second of the workers that are even in both arms, on average."""
    others = [float(units) for _, units, _ in result["workers"][:-1]]
    return sum(others) / len(others) / float(result["seconds"])


STUDY = StragglerStudy()
