"""The training loop against TRL's GRPOTrainer, on the same weights, prompts, lengths, loss and cores.

Owns the cells: one a comparison and seed, whose measurements take turns inside it. TRL lives in an environment of its own
(`make env-trl`, or COHARNESS_TRL_PYTHON); the smoke leaves it and Ray out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coharness.policy.bases import resolve_base, tiny_path
from coharness.records.errors import ConfigError
from coharness.studies.contract import Cell, Summary
from experiments.benchmarks.loop.arms import COMPARISONS, LEARNING, SHARED, Comparison
from experiments.benchmarks.loop.sides import compare, trl_version
from experiments.benchmarks.loop.summary import summarise

SPEED_SEEDS = 3
QUICK_UPDATES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStudy:
    """See `coharness.studies.contract.Study`."""

    name: str = "benchmarks/loop"
    question: str = (
        "Is the training loop as cheap as TRL's, faster where it can hide waits, and no worse in what is learned?"
    )
    num_seeds: int = 5
    cell_deadline_s: float = 4 * 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Updates of each measurement, by comparison."""
        if rollouts is not None:
            raise ConfigError(f"{self.name} measures a fixed number of updates, not rollouts; leave --rollouts out")
        return {f"{c.name}/updates": float(c.updates) for c in _comparisons(quick)}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Each comparison under each seed; run them one at a time (`--parallel 1`), since they are timed."""
        self.budget(quick=quick, rollouts=rollouts)
        config = {
            "trl": None if quick else trl_version(),
            "base_digest": resolve_base(str(tiny_path())).digest,
            "shared": dict(SHARED),
        }
        return [
            Cell(arm=comparison.name, seed=seed, config={**config, "comparison": _record(comparison)})
            for seed in seeds
            for comparison in _comparisons(quick)
            if comparison.name == LEARNING.name or seed < SPEED_SEEDS
        ]

    def run_cell(self, cell: Cell, folder: Path) -> Mapping[str, Any]:
        """Measure one comparison under one seed, going on with what an earlier process measured."""
        comparison = next(
            c for quick in (False, True) for c in _comparisons(quick) if _record(c) == cell.config["comparison"]
        )
        if comparison.name == LEARNING.name:
            from experiments.benchmarks.loop.quality import learn

            return learn(comparison, seed=cell.seed, folder=folder, base=tiny_path())
        return compare(comparison, seed=cell.seed, folder=folder)

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Ratios to TRL and what was learned; see `summary`."""
        return summarise(cells)


def _comparisons(quick: bool) -> list[Comparison]:
    """All of them; the smoke takes one, our in-process side alone, for a few updates."""
    if not quick:
        return [*COMPARISONS, LEARNING]
    local = next(side for side in COMPARISONS[0].sides if side.name == "ours_in_process")
    return [
        replace(c, sides=(local,), warm_updates=2, updates=QUICK_UPDATES, rounds=1)
        for c in COMPARISONS
        if c.name == "tail"
    ]


def _record(comparison: Comparison) -> dict[str, Any]:
    """A comparison as the JSON values of a cell's record."""
    made: dict[str, Any] = json.loads(json.dumps(asdict(comparison)))
    return made


STUDY = LoopStudy()
