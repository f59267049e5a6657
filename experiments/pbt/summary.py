"""What all cells say together: sealed success of the schedule that each arm found, against the best of as many fixed settings.

J is greedy success on sealed tasks, the mean over cells of family and level. An arm's number under one search seed is the mean
over its clean runs; search seeds are the unit of every interval, clean runs and tasks are never pooled with them. Arms are
compared in pairs by search seed: those searches began with the same settings. A comparison is called above or below only where
the interval that holds for all comparisons at once says so (Bonferroni).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coharness.stats.paired import mde, paired_t_interval
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table

CONTROL = "random"
LEVEL = 0.95
GENES = ("learning_rate", "kl_coefficient", "group_size", "temperature")
Arm = Mapping[int, Mapping[str, Any]]
"""Search seed -> result of the cell."""


def summarise(cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
    """Figures and tables of the study.

    Raises:
        StudyError: arms do not have the same seeds, or cells read another base.
    """
    arms = _by_arm(cells)
    others = [arm for arm in arms if arm != CONTROL]
    figures = [figure for arm, by_seed in arms.items() for figure in _figures(arm, by_seed)]
    figures += [_against(arm, arms, which) for arm in others for which in ("clean", "found")]
    figures += [_compute(arm, arms) for arm in others]
    return Summary(
        figures=tuple(figures), tables=(_arms_table(arms), _contrasts_table(arms, others), _found_table(arms))
    )


def found_success(result: Mapping[str, Any]) -> float:
    """J of the search's best member itself."""
    return float(np.mean(result["sealed"]["best"]))


def clean_success(result: Mapping[str, Any]) -> float:
    """J of its schedule, the mean over clean runs."""
    return float(np.mean([run["sealed"] for run in result["clean"]]))


def base_success(result: Mapping[str, Any]) -> float:
    """J of the untouched base."""
    return float(np.mean(result["sealed"]["base"]))


READ = {"clean": clean_success, "found": found_success}


def differences(arms: Mapping[str, Arm], arm: str, which: str) -> list[float]:
    """An arm's J above that of the best fixed setting, by search seed."""
    read = READ[which]
    return [read(arms[arm][seed]) - read(arms[CONTROL][seed]) for seed in arms[arm]]


def verdict(values: Sequence[float], num_comparisons: int) -> str:
    """`above`, `below`, or `undecided` where the interval that holds for all comparisons at once contains 0."""
    if len(values) < 2:
        return "undecided"
    interval = paired_t_interval(values, 1 - (1 - LEVEL) / num_comparisons)
    return "above" if interval.low > 0 else "below" if interval.high < 0 else "undecided"


def _by_arm(cells: Mapping[Cell, Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    arms: dict[str, dict[int, Mapping[str, Any]]] = {}
    for cell, result in sorted(cells.items(), key=lambda entry: entry[0].seed):
        arms.setdefault(cell.arm, {})[cell.seed] = result
    if CONTROL not in arms or len({tuple(by_seed) for by_seed in arms.values()}) > 1:
        raise StudyError(
            f"arms are compared by search seed with {CONTROL}, got {_seeds(arms)}; run them all under the same seeds"
        )
    bases = {tuple(result["sealed"]["base"]) for result in cells.values()}
    if len(bases) > 1:
        raise StudyError("cells read other sealed tasks, or another base, than each other; run them again")
    return arms


def _seeds(arms: Mapping[str, Arm]) -> str:
    return ", ".join(f"{arm}: {list(by_seed)}" for arm, by_seed in arms.items())


def _figures(arm: str, by_seed: Arm) -> list[Figure]:
    results = list(by_seed.values())
    gains = [clean_success(r) - base_success(r) for r in results]
    return [
        _mean(f"J/{arm}", [clean_success(r) for r in results], by_seed, "sealed success of its schedule in clean runs"),
        _mean(f"gain/{arm}", gains, by_seed, "of the clean runs over the untouched base on the same sealed tasks"),
        _mean(f"found/{arm}", [found_success(r) for r in results], by_seed, "sealed success of the search's best member itself"),
    ]  # fmt: skip


def _against(arm: str, arms: Mapping[str, Arm], which: str) -> Figure:
    what = {"clean": "its schedule's clean runs", "found": "its best member"}[which]
    name = {"clean": "schedule_over_random", "found": "found_over_random"}[which]
    return _mean(
        f"{name}/{arm}",
        differences(arms, arm, which),
        arms[arm],
        f"{what} minus those of the best fixed setting, paired",
    )


def _compute(arm: str, arms: Mapping[str, Arm]) -> Figure:
    ratios = [arms[arm][seed]["episodes"] / arms[CONTROL][seed]["episodes"] for seed in arms[arm]]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    return Figure(
        name=f"episodes_by_random/{arm}", value=worst, low=None, high=None, unit="ratio", seeds=tuple(arms[arm]),
        note="episodes of the search by those of the fixed settings, readings included; the seed furthest from 1",
    )  # fmt: skip


def _mean(name: str, values: Sequence[float], by_seed: Arm, note: str) -> Figure:
    interval = paired_t_interval(values, LEVEL) if len(values) > 1 else None
    return Figure(
        name=name,
        value=float(np.mean(values)),
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        unit="J",
        seeds=tuple(by_seed),
        note=f"{note}; 95 % t interval over search seeds",
    )


def _arms_table(arms: Mapping[str, Arm]) -> Table:
    rows = []
    for arm, by_seed in arms.items():
        results = list(by_seed.values())
        clean = [clean_success(r) for r in results]
        rows.append(
            (
                arm,
                float(np.mean(clean)),
                float(np.std(clean, ddof=1)) if len(clean) > 1 else None,
                float(np.mean([found_success(r) for r in results])),
                float(np.mean([base_success(r) for r in results])),
                _round(results, "episodes"),
                round(float(np.mean([r["cpu_s"].get("search", 0.0) for r in results]))),
                round(float(np.mean([r["cpu_s"].get("clean", 0.0) for r in results]))),
                _round(results, "copies"),
                _round(results, "failures"),
            )
        )
    return Table(
        title="Sealed success of what each arm found",
        columns=(
            "arm",
            "J, clean",
            "sd",
            "J, found",
            "J, base",
            "episodes",
            "CPU s",
            "CPU s, clean",
            "copies",
            "failures",
        ),
        rows=tuple(rows),
        note="Means over search seeds; sd between them. Clean: the best member's schedule from the base on fresh seeds. Found: "
        "that member itself. Episodes and CPU seconds of the search, all members and readings; of the clean runs apart.",
    )


def _contrasts_table(arms: Mapping[str, Arm], others: Sequence[str]) -> Table:
    rows: list[tuple[str | int | float | None, ...]] = []
    for arm in others:
        values = differences(arms, arm, "clean")
        interval = paired_t_interval(values, LEVEL) if len(values) > 1 else None
        rows.append(
            (
                arm,
                float(np.mean(values)),
                None if interval is None else interval.low,
                None if interval is None else interval.high,
                None if interval is None else mde(float(np.std(values, ddof=1)), len(values)),
                verdict(values, len(others)),
            )
        )
    return Table(
        title="Schedules against the best of as many fixed settings, at equal episodes",
        columns=("arm", "difference", "low", "high", "detectable", "verdict"),
        rows=tuple(rows),
        note="J of clean runs, paired by search seed; 95 % t interval of each. The verdict needs an interval that holds for all "
        "rows at once. Detectable: least true difference that a one-sided test finds with chance .8 at this spread.",
    )


def _found_table(arms: Mapping[str, Arm]) -> Table:
    rows: list[tuple[str | int | float | None, ...]] = [
        (arm, seed, *(_span([stretch[gene] for stretch in result["path"]]) for gene in GENES), clean_success(result))
        for arm, by_seed in arms.items()
        for seed, result in by_seed.items()
    ]
    return Table(
        title="Schedules that were found",
        columns=("arm", "seed", *GENES, "J, clean"),
        rows=tuple(rows),
        note="First and last value on the best member's path; a single one where it never moved.",
    )


def _span(values: Sequence[float]) -> str:
    first, last = values[0], values[-1]
    return f"{first:.3g}" if len(set(values)) == 1 else f"{first:.3g} to {last:.3g}"


def _round(results: Sequence[Mapping[str, Any]], name: str) -> float:
    return round(float(np.mean([r[name] for r in results])), 1)
