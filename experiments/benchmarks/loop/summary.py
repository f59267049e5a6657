"""What the cells say together: ratios to TRL seed by seed, and the absolute numbers beside them."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from coharness.studies.contract import Cell, Figure, Summary, Table

Result = Mapping[str, Any]
Measure = Callable[[Result], float]
RATES: Mapping[str, Measure] = {
    "per_cpu_second": lambda r: r["trajectories"] / r["cpu_s"],
    "rate": lambda r: r["trajectories"] / r["seconds"],
}
NOTE = "trajectories trained on, ours by TRL's at its better thread count; medians of rounds, by seed; one-sided 95 % t bounds"


def summarise(cells: Mapping[Cell, Result]) -> Summary:
    """Figures and tables of all comparisons."""
    by_arm: dict[str, dict[int, Result]] = {}
    for cell, result in sorted(cells.items(), key=lambda entry: entry[0].seed):
        by_arm.setdefault(cell.arm, {})[cell.seed] = result
    figures: list[Figure] = []
    for arm, results in by_arm.items():
        figures += _quality(results) if arm == "quality" else _ratios(arm, results)
    rows = [row for arm, results in by_arm.items() for row in _rows(arm, results)]
    speeds = Table(
        title="All measurements, medians over rounds and seeds",
        columns=(
            "load",
            "side",
            "trajectories/s",
            "tokens/s",
            "updates/s",
            "CPU ms/trajectory",
            "cores used",
            "staleness",
        ),
        rows=tuple(rows),
        note="Ours counts Ray's processes. Staleness: updates between drawing and training, mean; TRL's is 0.",
    )
    tables = [speeds]
    if "quality" in by_arm:
        tables.append(_learned(by_arm["quality"]))
    return Summary(figures=tuple(figures), tables=tuple(tables))


def side_names(results: Mapping[int, Result]) -> list[str]:
    """Sides that were measured, in the order of the comparison."""
    return [name for name in next(iter(results.values())) if name != "correct"]


def median_of(result: Result, side: str, measure: Measure) -> float:
    """Median over the rounds of one cell."""
    return statistics.median(measure(found) for found in result[side])


def _ratios(arm: str, results: Mapping[int, Result]) -> list[Figure]:
    names = side_names(results)
    trl = [name for name in names if name.startswith("trl")]
    if not trl:
        return [
            _mean(
                f"{arm}/{name}/{what}",
                [median_of(r, name, measure) for r in results.values()],
                "1/s",
                results,
                "no peer",
            )
            for name in names
            for what, measure in RATES.items()
        ]
    figures = []
    for name in names:
        if name in trl:
            continue
        for what, measure in RATES.items():
            ratios = [
                median_of(r, name, measure) / max(median_of(r, t, measure) for t in trl) for r in results.values()
            ]
            label = f"{arm}/{what}" if name == "ours" else f"{arm}/{name}/{what}"
            figures.append(_mean(label, ratios, "ratio", results, NOTE))
    return figures


def _quality(results: Mapping[int, Result]) -> list[Figure]:
    ours, theirs = side_names(results)
    share = {name: [_share(r["correct"][name]) for r in results.values()] for name in ("base", ours, theirs)}
    differences = [a - b for a, b in zip(share[ours], share[theirs], strict=True)]
    tokens = [r[ours][0]["all_tokens"] / r[theirs][0]["all_tokens"] for r in results.values()]
    gains = [a - b for a, b in zip(share[ours], share["base"], strict=True)]
    return [
        _mean("quality/difference", differences, "accuracy", results,
              "sealed accuracy after as many trajectories, ours minus TRL's; one-sided 95 % t bounds over seeds"),
        _mean("quality/gain", gains, "accuracy", results, "ours minus the base's: whether anything was learned"),
        _mean("quality/tokens", tokens, "ratio", results, "tokens trained on, ours by TRL's"),
    ]  # fmt: skip


def _learned(results: Mapping[int, Result]) -> Table:
    ours, theirs = side_names(results)
    return Table(
        title="Sealed accuracy of the same tasks, greedy",
        columns=("seed", "base", "ours", "TRL", "updates", "tokens, ours", "tokens, TRL", "staleness"),
        rows=tuple(
            (
                seed,
                *(_share(r["correct"][name]) for name in ("base", ours, theirs)),
                r[ours][0]["all_updates"],
                r[ours][0]["all_tokens"],
                r[theirs][0]["all_tokens"],
                r[ours][0]["staleness_mean"],
            )
            for seed, r in results.items()
        ),
    )


def _rows(arm: str, results: Mapping[int, Result]) -> list[tuple[str | float | None, ...]]:
    measures: tuple[Measure, ...] = (
        RATES["rate"],
        lambda r: r["tokens"] / r["seconds"],
        lambda r: r["updates"] / r["seconds"],
        lambda r: 1e3 * r["cpu_s"] / r["trajectories"],
        lambda r: r["cpu_s"] / r["seconds"],
        lambda r: r.get("staleness_mean", 0.0),
    )
    return [
        (arm, name, *(statistics.median(median_of(r, name, m) for r in results.values()) for m in measures))
        for name in side_names(results)
    ]


def _share(digits: str) -> float:
    return digits.count("1") / len(digits)


def _mean(name: str, values: list[float], unit: str, results: Mapping[int, Result], note: str) -> Figure:
    """Mean over seeds with one-sided 95 % t bounds on either side."""
    low = high = None
    mean = float(np.mean(values))
    if len(values) > 1:
        half = float(stats.t(len(values) - 1).ppf(0.95) * np.std(values, ddof=1) / np.sqrt(len(values)))
        low, high = mean - half, mean + half
    return Figure(name=name, value=mean, low=low, high=high, unit=unit, seeds=tuple(results), note=note)
