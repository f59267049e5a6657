"""Can a library of tool skills be evolved from about a hundred sources with preferences, and does the gate refuse noise?"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coharness.records.errors import ConfigError
from coharness.stats.paired import paired_t_interval
from coharness.studies.contract import Cell, Figure, Summary, Table

SIZES = {"train": 100, "test": 150, "photo": 100, "operation": 50, "null": 20}
QUICK = {"train": 40, "test": 12, "photo": 8, "operation": 6, "null": 2}
_SETS = ("test", "photo", "new_operation")


class ImagesStudy:
    """One cell a seed: demonstrations, evolution, controls, tests."""

    name = "reward/images"
    question = (
        "Can a library of tool skills be evolved from the preferences of 100 sources, and does its gate refuse noise?"
    )
    num_seeds = 8
    cell_deadline_s = 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Sources of each set."""
        if rollouts is not None:
            raise ConfigError("this study draws images and has no rollouts; leave --rollouts out")
        return {name: float(size) for name, size in (QUICK if quick else SIZES).items()}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> Sequence[Cell]:
        """One cell a seed."""
        config = {"sizes": QUICK if quick else SIZES}
        return [Cell(arm="images", seed=seed, config=config) for seed in seeds]

    def run_cell(self, cell: Cell, folder: Path) -> Mapping[str, Any]:
        """All figures of one seed; images are written to a folder that goes away again."""
        from coharness.reward.images.extra import require_images
        from experiments.reward.images.cell import run

        require_images()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            return run(cell.seed, cell.config["sizes"], Path(scratch))

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Means over seeds with t intervals."""
        ordered = sorted(cells.items(), key=lambda item: item[0].seed)
        results = [result for _, result in ordered]
        seeds = tuple(cell.seed for cell, _ in ordered)

        def figure(name: str, values: Sequence[float], unit: str = "share", note: str = "") -> Figure:
            mean = float(np.mean(values))
            if len(values) < 2:
                return Figure(name=name, value=mean, low=None, high=None, unit=unit, seeds=seeds, note=note)
            found = paired_t_interval(values)
            note = note or "95 % t interval over seeds, each with its own training and test sources"
            return Figure(name=name, value=mean, low=found.low, high=found.high, unit=unit, seeds=seeds, note=note)

        figures = [
            figure(f"{arm}/{key}", [result["rows"][arm][key] for result in results])
            for arm in results[0]["rows"]
            for key in results[0]["rows"][arm]
        ]
        for control in ("by_hand", "logistic_clean", "boosted_trees_clean"):
            gaps = [result["rows"]["clean"]["test"] - result["rows"][control]["test"] for result in results]
            figures.append(figure(f"clean-{control}/test", gaps))
        for control in ("logistic_noisy", "boosted_trees_noisy"):
            gaps = [result["rows"]["noisy"]["test"] - result["rows"][control]["test"] for result in results]
            figures.append(figure(f"noisy-{control}/test", gaps))
        figures += [
            figure("null/accepted", [np.mean([n["accepted"] for n in r["null"]]) for r in results], "skills"),
            figure("null/kept", [np.mean([n["kept"] for n in r["null"]]) for r in results], "skills"),
            figure("decoys/kept", [result["decoys"]["decoys"] for result in results], "skills",
                   "skills on twenty features of pure noise, beside real ones"),
            figure("clean/k4", [result["groups"]["k4"] for result in results], note="all six pairs of four candidates right"),
            figure("clean/top1", [result["groups"]["top1"] for result in results]),
            figure("clean/skills", [result["skills"]["clean"] for result in results], "skills"),
            figure("noisy/skills", [result["skills"]["noisy"] for result in results], "skills"),
            figure("evolve/cpu_s", [result["cpu_s"] for result in results], "s",
                   "process CPU: writing, reading and measuring 100 sources of four candidates, and evolving, on one core"),
            figure("evolve/wall_s", [result["wall_s"] for result in results], "s", "wall time of the same"),
            figure("measure/candidates_per_cpu_s", [r["candidates"] / r["measure_cpu_s"] for r in results], "1/s"),
            figure("judgments/of_published", [r["judgments"]["asked"] / r["judgments"]["published"] for r in results], "ratio",
                   "pairs to ask a judge of for the same trials, with answers kept, over those of the published loop"),
        ]  # fmt: skip
        mean = {f.name: f.value for f in figures}
        arms = [arm for arm in results[0]["rows"] if "test" in results[0]["rows"][arm]]
        rows = [
            (arm, *(round(mean[f"{arm}/{key}"], 3) if f"{arm}/{key}" in mean else None for key in _SETS))
            for arm in arms
        ]
        rows += [("random", 0.5, 0.5, 0.5)]
        return Summary(
            figures=tuple(figures),
            tables=(
                Table(title="Accuracy on strict pairs, mean over seeds", columns=("judge", *_SETS), rows=tuple(rows)),
                Table(
                    title="What was evolved, seed by seed, clean labels",
                    columns=("seed", "skills", "accuracy", "names"),
                    rows=tuple(
                        (c.seed, r["skills"]["clean"], round(r["rows"]["clean"]["test"], 3), ", ".join(r["library"]))
                        for c, r in ordered
                    ),
                ),
            ),
        )  # fmt: skip


STUDY = ImagesStudy()
