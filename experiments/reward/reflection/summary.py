"""What all cells say together: alarms and their delay, conflicts, sealed accuracy at the moments that matter, paired differences.

J is greedy success on sealed tasks, the mean over cells of family and level. Seeds are the unit of every interval; a rate of
conflicts is pooled over seeds for its table alone and stands there with Wilson's interval, which holds within a run.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coharness.stats.interval import Interval
from coharness.stats.paired import paired_t_interval, paired_t_lower_bound
from coharness.stats.proportions import clopper_pearson, wilson
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table

MOMENTS = ("base", "alarm", "repair", "end")
_CHANGES = (
    ("hack/fall", "reflection", "repair", "base", "J of the base minus J when the mended judge took over"),
    ("recovery/since_repair", "reflection", "end", "repair", "J at the end minus J when the mended judge took over"),
    ("unrepaired/change", "no_reflection", "end", "alarm", "J at the end minus J at the first alarm"),
)
"""Figure, arm, later moment, earlier moment, what it is."""
Results = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Arm -> seed -> result of the cell."""


def summarise(cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
    """Figures and tables of the study.

    Raises:
        StudyError: two cells read other sealed tasks.
    """
    results: dict[str, dict[int, Mapping[str, Any]]] = {}
    first: Mapping[str, Any] | None = None
    for cell, result in cells.items():
        results.setdefault(cell.arm, {})[cell.seed] = result
        first = first or result
        if (result["tasks"], result["sealed"]["base"]) != (first["tasks"], first["sealed"]["base"]):
            raise StudyError(f"{cell} read other sealed tasks, or another base, than the first cell; run both again")
    figures: list[Figure] = []
    for arm, by_seed in results.items():
        figures += _accuracy(arm, by_seed)
        if any(r["steps"] for r in by_seed.values()):
            figures += _alarms(arm, by_seed)
    figures += _conflicts(results.get("reflection", {}))
    figures += _differences(results)
    return Summary(figures=tuple(figures), tables=(_moments_table(results), _judges_table(results)))


def success(tasks: Sequence[Sequence[Any]], digits: str) -> float:
    """J of answers to tasks, a digit each: the mean over cells of family and level."""
    if len(tasks) != len(digits):
        raise StudyError(f"a cell has {len(digits)} answers for {len(tasks)} tasks; run it again")
    found: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for (family, level, _), digit in zip(tasks, digits, strict=True):
        found[family, level].append(digit == "1")
    return float(np.mean([np.mean(solved) for solved in found.values()]))


def accuracy(result: Mapping[str, Any], moment: str) -> float | None:
    """J of a cell at a moment; None where the run had no such moment."""
    digits = result["sealed"].get(moment)
    return None if digits is None else success(result["tasks"], digits)


def repaired_pairs(results: Results) -> list[tuple[int, float, float]]:
    """(seed, J at the end with reflection, J at the end without) of the seeds that both arms have."""
    on, off = results.get("reflection", {}), results.get("no_reflection", {})
    found = []
    for seed in sorted(on.keys() & off.keys()):
        with_it, without = accuracy(on[seed], "end"), accuracy(off[seed], "end")
        if with_it is not None and without is not None:
            found.append((seed, with_it, without))
    return found


def _mean(name: str, values: Sequence[float], seeds: Sequence[int], unit: str, note: str = "") -> Figure:
    interval = paired_t_interval(list(values)) if len(values) > 1 else None
    return Figure(
        name=name,
        value=float(np.mean(values)),
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        unit=unit,
        seeds=tuple(seeds),
        note=note,
    )


def _accuracy(arm: str, by_seed: Mapping[int, Mapping[str, Any]]) -> list[Figure]:
    figures = []
    for moment in MOMENTS:
        known = {seed: j for seed, r in by_seed.items() if (j := accuracy(r, moment)) is not None}
        if known:
            figures.append(
                _mean(f"sealed/{arm}/{moment}", list(known.values()), list(known), "share", "t over seeds, 95 %")
            )
    return figures


def _alarms(arm: str, by_seed: Mapping[int, Mapping[str, Any]]) -> list[Figure]:
    alarmed = [seed for seed, r in by_seed.items() if r["alarms"]]
    share = clopper_pearson(len(alarmed), len(by_seed))
    figures = [
        Figure(
            name=f"alarmed/{arm}",
            value=share.value,
            low=share.low,
            high=share.high,
            unit="share of runs",
            seeds=tuple(by_seed),
            note="Clopper-Pearson over seeds, 95 %",
        )
    ]
    if alarmed:
        at = [float(by_seed[seed]["alarms"][0]["charged"]) for seed in alarmed]
        figures.append(_mean(f"first_alarm/{arm}", at, alarmed, "episodes", "of runs that raised one; t over seeds"))
        mended = [seed for seed in alarmed if any(t["how"] == "mended" for t in by_seed[seed]["terms"])]
        if mended:
            since = [
                float(
                    next(t["since"] for t in by_seed[s]["terms"] if t["how"] == "mended")
                    - by_seed[s]["alarms"][0]["charged"]
                )
                for s in mended
            ]
            figures.append(
                _mean(f"repair_delay/{arm}", since, mended, "episodes", "from the first alarm to the new judge")
            )
    return figures


def _conflicts(by_seed: Mapping[int, Mapping[str, Any]]) -> list[Figure]:
    """What the accepted repair did on the same fresh attempts, seed by seed."""
    falls, seeds = [], []
    for seed, result in by_seed.items():
        accepted = [r for r in result["repairs"] if r["fresh"]]
        if accepted and any(t["how"] == "mended" for t in result["terms"]):
            falls.append((accepted[-1]["before"] - accepted[-1]["after"]) / accepted[-1]["fresh"])
            seeds.append(seed)
    if not falls:
        return []
    low = paired_t_lower_bound(falls) if len(falls) > 1 else None
    return [
        Figure(
            name="conflicts/fall",
            value=float(np.mean(falls)),
            low=low,
            high=None,
            unit="share of attempts",
            seeds=tuple(seeds),
            note="rate under the old judge minus rate under the mended one, on the same fresh attempts; one-sided t, 95 %",
        )
    ]


def _differences(results: Results) -> list[Figure]:
    figures = []
    pairs = repaired_pairs(results)
    comparisons: list[tuple[str, list[int], list[float], str]] = []
    if pairs:
        note = "J at the end with reflection minus J at the end without, paired by seed; one-sided t, 95 %"
        comparisons.append(
            ("recovery/over_no_reflection", [s for s, _, _ in pairs], [a - b for _, a, b in pairs], note)
        )
    for name, arm, after, before, note in _CHANGES:
        change = {
            seed: (j - k) * (-1 if name == "hack/fall" else 1)
            for seed, r in results.get(arm, {}).items()
            if (j := accuracy(r, after)) is not None and (k := accuracy(r, before)) is not None
        }
        if change:
            comparisons.append((name, list(change), list(change.values()), f"{note}; one-sided t, 95 %"))
    for name, seeds, values, note in comparisons:
        low = paired_t_lower_bound(values) if len(values) > 1 else None
        figures.append(
            Figure(
                name=name, value=float(np.mean(values)), low=low, high=None, unit="share", seeds=tuple(seeds), note=note
            )
        )
    return figures


def _moments_table(results: Results) -> Table:
    rows: list[tuple[str | int | float | None, ...]] = []
    for arm, by_seed in results.items():
        for seed, result in by_seed.items():
            js = [accuracy(result, moment) for moment in MOMENTS]
            first = result["alarms"][0]["charged"] if result["alarms"] else None
            shown = [None if j is None else round(j, 3) for j in js]
            rows.append((arm, seed, *shown, first, len(result["alarms"]), result["refused"], round(result["cpu_s"])))
    return Table(
        title="Sealed accuracy at the moments of each run",
        columns=("arm", "seed", *MOMENTS, "first alarm", "alarms", "repairs refused", "CPU s"),
        rows=tuple(rows),
        note="alarm: the weights at the first alarm; repair: those when the mended judge took over; first alarm in episodes",
    )


def _judges_table(results: Results) -> Table:
    rows: list[tuple[str | int | float | None, ...]] = []
    for arm, by_seed in results.items():
        totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        for result in by_seed.values():
            for place, entry in enumerate(result["conflicts"]):
                for k, key in enumerate(("lenient", "right", "attempts")):
                    totals[place][k] += entry[key]
        for place, (lenient, right, attempts) in sorted(totals.items()):
            if attempts:
                rate: Interval = wilson(lenient, attempts)
                shown = f"{rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f})"
                rows.append((arm, place + 1, attempts, shown, round(right / attempts, 3)))
    return Table(
        title="Attempts that a judge rated high and the verifier failed, among the last 512 that each version saw",
        columns=("arm", "version", "attempts", "high and wrong", "right"),
        rows=tuple(rows),
        note="pooled over seeds; Wilson, 95 %",
    )
