"""Do weights by phase, or weights that anchors or a benchmark choose, beat fixed weights? On a written-down toy, 20 seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from coharness.records.errors import ConfigError
from coharness.records.ids import derive_seed
from coharness.stats.interval import Interval
from coharness.stats.paired import paired_t_interval
from coharness.studies.contract import Cell, Figure, Summary, Table
from experiments.reward.weights.arms import ARMS, BUDGET, Training, candidates, fixed
from experiments.reward.weights.world import World

SEEDS = 20
QUICK_SEEDS = 3
TUNING_WORLDS = 12
QUICK_TUNING_WORLDS = 2
WORLDS_PER_SEED = 8
"""A seed's value is the mean over so many worlds; seeds are the unit of every interval."""
CONTROLS = ("equal", "best_fixed", "phases_mean")
NEW = tuple(name for name in ARMS if name not in ("equal", "phases_mean", "random"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsStudy:
    """Ways of setting weights, and the fixed weights that were best on other worlds; see `studies.contract.Study`."""

    name: str = "reward/weights"
    question: str = "Do criteria weights by phase, or chosen by anchors, beat fixed weights for the same budget?"
    num_seeds: int = SEEDS
    cell_deadline_s: float = 1800.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Updates of one training, measurements included by their prices."""
        if rollouts is not None:
            raise ConfigError("reward/weights has a budget of updates in arms.py; leave --rollouts out")
        return {"updates": BUDGET}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """One cell a seed: all arms on the same worlds."""
        chosen = list(seeds)[:QUICK_SEEDS] if quick else seeds
        config = {
            **self.budget(quick=quick, rollouts=rollouts),
            "worlds": 2 if quick else WORLDS_PER_SEED,
            "tuning_worlds": QUICK_TUNING_WORLDS if quick else TUNING_WORLDS,
        }
        return [Cell(arm="all", seed=seed, config=config) for seed in chosen]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """The worth at the end under each arm, mean over the seed's worlds."""
        best = best_fixed(int(cell.config["tuning_worlds"]))
        found: dict[str, list[float]] = {name: [] for name in (*ARMS, "best_fixed")}
        for number in range(int(cell.config["worlds"])):
            world = World.draw(np.random.default_rng(derive_seed("world", cell.seed, number)))
            for name, train in ARMS.items():
                training = _training(world, cell.seed, number, name)
                train(training)
                found[name].append(_worth(training))
            training = _training(world, cell.seed, number, "best_fixed")
            fixed(training, best)
            found["best_fixed"].append(_worth(training))
        return {"worth": {name: float(np.mean(values)) for name, values in found.items()}, "best_fixed": best.tolist()}

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Worths, and the paired differences from the controls."""
        ordered = sorted(cells, key=lambda cell: cell.seed)
        seeds = tuple(cell.seed for cell in ordered)
        worth = {
            name: np.asarray([cells[cell]["worth"][name] for cell in ordered]) for name in (*CONTROLS, *NEW, "random")
        }
        figures = [
            Figure(name=f"{name}/worth", value=float(v.mean()), low=None, high=None, unit="worth", seeds=seeds)
            for name, v in worth.items()
        ]
        rows = []
        for name in (*NEW, "random", "best_fixed", "phases_mean"):
            gains = {control: worth[name] - worth[control] for control in CONTROLS if control != name}
            told = {control: _interval(gain) for control, gain in gains.items()}
            for control, interval in told.items():
                figures.append(
                    Figure(
                        name=f"{name}-{control}",
                        value=interval.value,
                        low=interval.low if len(seeds) > 1 else None,
                        high=interval.high if len(seeds) > 1 else None,
                        unit="worth",
                        seeds=seeds,
                        note="95 % t interval over seeds, paired",
                    )
                )
            shown = [asdict(told[c]) if c in told else None for c in CONTROLS]
            rows.append(
                (
                    name,
                    round(float(worth[name].mean()), 4),
                    *(None if s is None else f"{s['value']:+.4f} [{s['low']:+.4f}, {s['high']:+.4f}]" for s in shown),
                )
            )
        return Summary(
            figures=tuple(figures),
            tables=(
                Table(
                    title=f"Worth after {BUDGET} updates; equal weights {worth['equal'].mean():.4f}",
                    columns=("weights", "worth", "less equal", "less best fixed", "less the phases' mean"),
                    rows=tuple(rows),
                    note="best fixed: of 71 fixed weights the best on worlds of its own, which none of the others had",
                ),
            ),
        )


def best_fixed(num_worlds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The fixed weights with the highest mean worth on tuning worlds, none of which any seed has."""
    grid = candidates()
    total = np.zeros(len(grid))
    for number in range(num_worlds):
        world = World.draw(np.random.default_rng(derive_seed("tuning world", number)))
        rng = np.random.default_rng(derive_seed("tuning", number))
        skills = np.repeat(world.first[None], len(grid), axis=0)
        for _ in range(BUDGET):
            skills = world.update(skills, grid, rng)
        total += world.worth(special.expit(skills))
    return np.asarray(grid[int(np.argmax(total))])


def _training(world: World, seed: int, number: int, name: str) -> Training:
    rng = np.random.default_rng(derive_seed("training", seed, number, name))
    return Training(world=world, rng=rng, skills=world.first.copy())


def _worth(training: Training) -> float:
    return float(training.world.worth(special.expit(training.skills)))


def _interval(differences: np.ndarray[Any, np.dtype[np.float64]]) -> Interval:
    if len(differences) > 1:
        return paired_t_interval(differences)
    value = float(differences.mean())
    return Interval.containing(value, value, value, 0.95)


STUDY = WeightsStudy()
