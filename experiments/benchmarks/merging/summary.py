"""What the cells say together: ratios to the peers, the median over seeds with the range that the seeds span."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coharness.studies.contract import Cell, Figure, Summary, Table
from experiments.benchmarks.merging.inputs import NUM_PARENTS, RULES

RANGE = "median over seeds; the range is the least and the largest of them"
Results = Mapping[int, Mapping[str, Any]]
"""Seed -> result of an arm's cell."""


def summarise(cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
    """Figures and tables; an arm that was skipped has a line that says so and no figure."""
    arms: dict[str, dict[int, Mapping[str, Any]]] = {}
    for cell, result in cells.items():
        arms.setdefault(cell.arm, {})[cell.seed] = result
    width = next(iter(cells)).config["width"]
    figures: list[Figure] = []
    tables: list[Table] = []
    for arm, describe in (("memory", _memory), ("lora", _lora), ("disk", _disk)):
        results = arms.get(arm, {})
        skipped = [str(result["skipped"]) for result in results.values() if "skipped" in result]
        if skipped:
            tables.append(Table(title=arm, columns=("skipped",), rows=((skipped[0],),)))
        elif results:
            found, table = describe(results, width)
            figures += found
            tables.append(table)
    return Summary(figures=tuple(figures), tables=tuple(tables))


def _memory(results: Results, width: int) -> tuple[list[Figure], Table]:
    figures = [
        _figure(
            f"memory/{rule}", [r["mergekit"][rule] / r["ours"][rule] for r in results.values()], "x mergekit", results
        )
        for rule in RULES
    ]
    # A linear merge reads every parent and writes the result; a copy reads one tensor and writes one.
    moved = (NUM_PARENTS + 1) / 2
    shares = [moved * r["ours"]["copy"] / r["ours"]["linear"] for r in results.values()]
    figures.append(_figure("memory/linear_of_copy_bandwidth", shares, "share", results))
    bytes_in = {"linear": NUM_PARENTS, "task_arithmetic": NUM_PARENTS + 1, "ties": NUM_PARENTS + 1}
    rows = tuple(
        (
            rule,
            1e3 * _median(r["ours"][rule] for r in results.values()),
            1e3 * _median(r["mergekit"][rule] for r in results.values()),
            4e-9 * width**2 * bytes_in[rule] / _median(r["ours"][rule] for r in results.values()),
        )
        for rule in RULES
    )
    columns = ("rule", "ours, CPU ms", "mergekit, CPU ms", "ours, GB of input a second")
    return figures, Table(title=f"In memory, {NUM_PARENTS} x [{width}, {width}] float32", columns=columns, rows=rows)


def _lora(results: Results, width: int) -> tuple[list[Figure], Table]:
    ratios = [r["dense"] / r["product"] for r in results.values()]
    rows = tuple((seed, 1e3 * r["product"], 1e3 * r["dense"], r["distance"]) for seed, r in sorted(results.items()))
    columns = ("seed", "product space, CPU ms", "dense SVD, CPU ms", "relative distance of the results")
    table = Table(title=f"Adapters, {NUM_PARENTS} x rank 16 on [{width}, {width}]", columns=columns, rows=rows)
    return [_figure("lora/product", ratios, "x dense SVD", results)], table


def _disk(results: Results, width: int) -> tuple[list[Figure], Table]:
    figures = []
    rows: list[tuple[str | int | float | None, ...]] = []
    for rule in RULES:
        pairs = [(r[f"ours/{rule}"], r[f"mergekit/{rule}"]) for r in results.values()]
        figures.append(_figure(f"disk/{rule}/cpu", [b["cpu_s"] / a["cpu_s"] for a, b in pairs], "x mergekit", results))
        shares = [a["peak_bytes"] / b["peak_bytes"] for a, b in pairs]
        figures.append(_figure(f"disk/{rule}/memory", shares, "of mergekit", results))
        rows.append(
            (
                rule,
                *(_median(side["cpu_s"] for side in sides) for sides in zip(*pairs, strict=True)),
                *(1e-6 * _median(side["peak_bytes"] for side in sides) for sides in zip(*pairs, strict=True)),
            )
        )
    columns = ("rule", "ours, CPU s", "mergekit, CPU s", "ours, peak MB", "mergekit, peak MB")
    note = "Whole processes, imports included; bfloat16 in and out, float32 inside."
    return figures, Table(title="Disk to disk", columns=columns, rows=tuple(rows), note=note)


def _figure(name: str, values: Sequence[float], unit: str, results: Results) -> Figure:
    spread = len(values) > 1
    return Figure(
        name=name,
        value=statistics.median(values),
        low=min(values) if spread else None,
        high=max(values) if spread else None,
        unit=unit,
        seeds=tuple(sorted(results)),
        note=RANGE,
    )


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))
