"""What all cells say together: sealed accuracy of each objective, and what is left of what the base could do.

J is greedy success on sealed tasks, the mean over cells of family and level. A cell is *easy* where the base solves .9 of it or
more; an arm keeps its easy cells to the share that its accuracy there is of the base's. Seeds are the unit of every interval.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coharness.stats.paired import paired_t_interval, paired_t_lower_bound
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table
from experiments.objectives.plot import Line, lines_svg

EASY = 0.9
"""Share of a cell's tasks that the base solves where the cell is easy."""
Results = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Arm -> seed -> result of the cell."""


def summarise(cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
    """Figures, tables and the plot of the study.

    Raises:
        StudyError: two cells do not hold the same sealed tasks or another base.
    """
    results = _by_arm(cells)
    figures: list[Figure] = []
    for arm, by_seed in results.items():
        figures += _figures(arm, by_seed)
    lines = [_line(arm, by_seed) for arm, by_seed in results.items()]
    return Summary(figures=tuple(figures), tables=(_table(results),), plots={"curves.svg": lines_svg(lines)})


def by_cell(tasks: Sequence[Sequence[Any]], digits: str) -> dict[tuple[str, int], float]:
    """(family, level) -> share of its tasks that are solved.

    Raises:
        StudyError: not one digit a task.
    """
    if len(tasks) != len(digits):
        raise StudyError(f"a cell has {len(digits)} answers for {len(tasks)} tasks; run it again")
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (family, level, _), digit in zip(tasks, digits, strict=True):
        found[family, level].append(digit == "1")
    return {cell: float(np.mean(solved)) for cell, solved in found.items()}


def success(tasks: Sequence[Sequence[Any]], digits: str) -> float:
    """J: the mean over cells."""
    return float(np.mean(list(by_cell(tasks, digits).values())))


def kept(result: Mapping[str, Any]) -> float | None:
    """Accuracy on easy cells as a share of the base's; None where no cell is easy."""
    base, end = (by_cell(result["tasks"], result[name]) for name in ("base", "end"))
    easy = [cell for cell, share in base.items() if share >= EASY]
    return sum(end[cell] for cell in easy) / sum(base[cell] for cell in easy) if easy else None


def _by_arm(cells: Mapping[Cell, Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    arms: dict[str, dict[int, Mapping[str, Any]]] = {}
    first: tuple[Cell, Mapping[str, Any]] | None = None
    for cell, result in cells.items():
        arms.setdefault(cell.arm, {})[cell.seed] = result
        first = first or (cell, result)
        if (result["tasks"], result["base"]) != (first[1]["tasks"], first[1]["base"]):
            raise StudyError(f"{cell} read other sealed tasks, or another base, than {first[0]}; run both again")
    return arms


def _figures(arm: str, by_seed: Mapping[int, Mapping[str, Any]]) -> list[Figure]:
    seeds = tuple(by_seed)
    ends = [success(r["tasks"], r["end"]) for r in by_seed.values()]
    gains = [end - success(r["tasks"], r["base"]) for end, r in zip(ends, by_seed.values(), strict=True)]
    interval = paired_t_interval(ends) if len(ends) > 1 else None
    low = paired_t_lower_bound(gains) if len(gains) > 1 else None
    shares = [share for r in by_seed.values() if (share := kept(r)) is not None]
    figures = [
        Figure(
            name=f"J/{arm}",
            value=float(np.mean(ends)),
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            unit="J",
            seeds=seeds,
            note="sealed success at the end; 95 % t interval over seeds",
        ),
        Figure(
            name=f"gain/{arm}",
            value=float(np.mean(gains)),
            low=low,
            high=None,
            unit="J",
            seeds=seeds,
            note="over the untouched base on the same tasks; one-sided 95 % t bound over seeds",
        ),
    ]
    if shares:
        figures.append(
            Figure(
                name=f"easy/{arm}",
                value=min(shares),
                low=None,
                high=None,
                unit="share",
                seeds=seeds,
                note="accuracy on the base's easy cells as a share of the base's own, the worst seed",
            )
        )
    return figures


def _line(arm: str, by_seed: Mapping[int, Mapping[str, Any]]) -> Line:
    curves = [
        [(float(point["rollouts"]), success(r["track"], point["correct"])) for point in r["curve"]]
        for r in by_seed.values()
    ]
    return Line(name=arm, curves=tuple(tuple(curve) for curve in curves))


def _table(results: Results) -> Table:
    rows: list[tuple[str | int | float | None, ...]] = []
    for arm, by_seed in results.items():
        ends = [success(r["tasks"], r["end"]) for r in by_seed.values()]
        base = success(*(next(iter(by_seed.values()))[key] for key in ("tasks", "base")))
        shares = [share for r in by_seed.values() if (share := kept(r)) is not None]
        metrics = [r["metrics"] for r in by_seed.values()]
        rows.append(
            (
                arm,
                float(np.mean(ends)),
                float(np.std(ends, ddof=1)) if len(ends) > 1 else None,
                float(np.mean(ends)) - base,
                min(shares) if shares else None,
                _mean(metrics, "kl/base"),
                _mean(metrics, "entropy/mean"),
                round(np.mean([r["updates"] for r in by_seed.values()])),
                round(np.mean([r["cpu_s"] for r in by_seed.values()])),
            )
        )
    return Table(
        title="Objectives at their vetted settings",
        columns=("arm", "J", "sd", "gain", "easy cells kept", "KL to base", "entropy", "updates", "CPU s"),
        rows=tuple(rows),
        note="J: greedy success on sealed tasks, mean of (family, level) cells. Kept: of the base's own accuracy on its easy "
        "cells, the worst seed. KL and entropy in nats a token, in the last update, where they are worked out. Means over seeds.",
    )


def _mean(metrics: Sequence[Mapping[str, float]], name: str) -> float | None:
    values = [m[name] for m in metrics if name in m]
    return float(np.mean(values)) if values else None
