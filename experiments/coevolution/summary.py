"""What all cells of the study say together: differences of co-evolution to each control, seed by seed.

The claim rule: against each control the paired difference over seeds with its one-sided 95 % t bound, at equal episodes, at equal
tokens and at equal CPU seconds; the claim needs every bound above zero, and the control arms to agree (no alarm of the A/A
tests, the vote of the base below the champion). No maximum over controls is taken, except that the better order of the stages
stands for `stagewise`, which favours the control. Seeds are the unit: tasks are averaged within a seed, never pooled with seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coharness.stats.paired import mde, paired_t_interval, paired_t_lower_bound
from coharness.stats.proportions import clopper_pearson
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table
from experiments.coevolution.curves import Budget, compare, curve_of, success_rate
from experiments.coevolution.plot import curves_svg

ASYNC = "async"
CONTROLS = ("randomized", "weights_only", "weights_only_full_range", "stagewise", "harness_only", "frozen")
ORDERS = ("stagewise_harness_first", "stagewise_weights_first")
CHOSEN_AT_END = ("randomized",)
"""Controls whose harness is picked after all training, so that they have no curve."""
VOTES = {"vote_equal_rollouts": "k from the rollouts", "vote_equal_tokens": "k from the champion's tokens a task"}
FDR_ALPHA = 0.1
BOUND = "one-sided 95 % t bounds over seeds"

Results = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Arm -> seed -> result of the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Co-evolution against one control under one budget."""

    budget: Budget
    control: str
    arm: str
    "The arm that stands for the control."
    seeds: tuple[int, ...]
    co: tuple[float, ...]
    "J of co-evolution, seed by seed."
    other: tuple[float, ...]
    spending: tuple[float, ...]
    "Where both were read, seed by seed."

    @property
    def differences(self) -> tuple[float, ...]:
        """J of co-evolution less that of the control, seed by seed."""
        return tuple(a - b for a, b in zip(self.co, self.other, strict=True))

    @property
    def name(self) -> str:
        """The figure's name."""
        return f"{self.budget}/{ASYNC}-{self.control}"

    def figures(self) -> list[Figure]:
        """The difference with its bounds, and the least difference that this many seeds would show."""
        note = f"{BOUND}; {self.arm}" if self.arm != self.control else BOUND
        figures = [difference_figure(self.name, self.differences, self.seeds, note)]
        if len(self.seeds) > 1:
            figures.append(
                Figure(
                    name=f"{self.name}/mde",
                    value=_mde(self.differences),
                    low=None,
                    high=None,
                    unit="J",
                    seeds=self.seeds,
                    note="least true difference found with 80 % chance at these seeds and their spread",
                )
            )
        return figures


def summarise(cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
    """Figures, tables and the plot of the study.

    Raises:
        StudyError: cells of one seed do not hold the same sealed tasks.
    """
    results = _by_arm(cells)
    comparisons = [c for budget in Budget for control in CONTROLS if (c := _comparison(results, control, budget))]
    figures = [_arm_figure(arm, by_seed) for arm, by_seed in results.items()]
    figures += [figure for comparison in comparisons for figure in comparison.figures()]
    vote_figures = _vote_figures(results[ASYNC])
    null = _null_figure(results[ASYNC])
    figures += [*vote_figures, null]
    tables = [_arms_table(results)]
    tables += [_comparison_table(budget, comparisons) for budget in Budget]
    tables += [_claim_table(comparisons, vote_figures, null), _harness_table(results)]
    curves = {arm: [curve_of(r, Budget.EPISODES) for r in by_seed.values()] for arm, by_seed in results.items()}
    return Summary(
        figures=tuple(figures), tables=tuple(tables), plots={"curves.svg": curves_svg(curves, CHOSEN_AT_END)}
    )


def _by_arm(cells: Mapping[Cell, Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    arms: dict[str, dict[int, Mapping[str, Any]]] = {}
    tasks: dict[int, tuple[str, Any]] = {}
    for cell, result in cells.items():
        arms.setdefault(cell.arm, {})[cell.seed] = result
        first, expected = tasks.setdefault(cell.seed, (cell.arm, result["tasks"]))
        if result["tasks"] != expected:
            raise StudyError(f"{cell} read other sealed tasks than arm {first}; they cannot be paired, run both again")
    if ASYNC not in arms:
        raise StudyError(f"no cell of the arm {ASYNC}; differences are taken to it")
    return arms


# Comparisons --------------------------------------------------------------------------------------------------------


def _comparison(results: Results, control: str, budget: Budget) -> Comparison | None:
    """The comparison with a control; of two orders of the stages, the one that does better. None where it was not run."""
    arms = ORDERS if control == "stagewise" else (control,)
    found = [_against(results, control, arm, budget) for arm in arms if arm in results]
    return min(found, key=lambda c: float(np.mean(c.differences)), default=None)


def _against(results: Results, control: str, arm: str, budget: Budget) -> Comparison:
    seeds = tuple(sorted(set(results[ASYNC]) & set(results[arm])))
    rows = [
        compare(
            curve_of(results[ASYNC][seed], budget),
            curve_of(results[arm][seed], budget),
            budget,
            chosen_at_end=arm in CHOSEN_AT_END,
        )
        for seed in seeds
    ]
    co, other, spending = (tuple(column) for column in zip(*rows, strict=True))
    return Comparison(budget=budget, control=control, arm=arm, seeds=seeds, co=co, other=other, spending=spending)


def difference_figure(name: str, differences: Sequence[float], seeds: tuple[int, ...], note: str) -> Figure:
    """A paired difference with the one-sided 95 % t bound at either side; no bounds with a single seed."""
    low = high = None
    if len(differences) > 1:
        low = paired_t_lower_bound(differences)
        high = -paired_t_lower_bound([-d for d in differences])
    return Figure(name=name, value=float(np.mean(differences)), low=low, high=high, unit="J", seeds=seeds, note=note)


def _mde(differences: Sequence[float]) -> float:
    return mde(float(np.std(differences, ddof=1)), len(differences))


# Figures of arms and controls ---------------------------------------------------------------------------------------


def _ends(by_seed: Mapping[int, Mapping[str, Any]]) -> list[float]:
    return [success_rate(r["tasks"], r["champion"]["correct"]) for r in by_seed.values()]


def _arm_figure(arm: str, by_seed: Mapping[int, Mapping[str, Any]]) -> Figure:
    ends = _ends(by_seed)
    interval = paired_t_interval(ends) if len(ends) > 1 else None
    return Figure(
        name=f"J/{arm}",
        value=float(np.mean(ends)),
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        unit="J",
        seeds=tuple(by_seed),
        note="sealed success of the champion at the end; 95 % t interval over seeds",
    )


def _vote_figures(by_seed: Mapping[int, Mapping[str, Any]]) -> list[Figure]:
    figures = []
    for name, what in VOTES.items():
        seeds = tuple(seed for seed, r in by_seed.items() if name in r["votes"])
        if not seeds:
            continue
        champion = _ends({seed: by_seed[seed] for seed in seeds})
        vote = [success_rate(by_seed[s]["tasks"], by_seed[s]["votes"][name]["correct"]) for s in seeds]
        k = by_seed[seeds[0]]["votes"][name]["k"]
        note = f"{BOUND}; majority of {k} samples of the base at temperature 1, {what}, no verifier"
        differences = [a - b for a, b in zip(champion, vote, strict=True)]
        figures.append(difference_figure(f"vote/{ASYNC}-{name}", differences, seeds, note))
    return figures


def _null_figure(by_seed: Mapping[int, Mapping[str, Any]]) -> Figure:
    """Share of the A/A tests that were accepted, over all seeds; an alarm where its lower bound exceeds the error budget."""
    accepted = sum(r["null"]["accepted"] for r in by_seed.values())
    decided = sum(r["null"]["decided"] for r in by_seed.values())
    interval = clopper_pearson(accepted, decided) if decided else None
    return Figure(
        name="null/accepted",
        value=accepted / decided if decided else 0.0,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        unit="share",
        seeds=tuple(by_seed),
        note=f"{accepted} of {decided} A/A tests; 95 % Clopper-Pearson interval, alarm where its low end exceeds {FDR_ALPHA}",
    )


# Tables -------------------------------------------------------------------------------------------------------------


def _arms_table(results: Results) -> Table:
    rows = []
    for arm, by_seed in results.items():
        ends = _ends(by_seed)
        spent = [r["spent"] for r in by_seed.values()]
        rows.append(
            (
                arm,
                float(np.mean(ends)),
                float(np.std(ends, ddof=1)) if len(ends) > 1 else None,
                float(min(ends)),
                float(max(ends)),
                round(np.mean([s["rollouts"] for s in spent])),
                round(np.mean([s["tokens"] for s in spent])),
                round(np.mean([s["cpu_s"] for s in spent])),
                float(np.mean([r["champion"]["tokens_per_task"] for r in by_seed.values()])),
            )
        )
    return Table(
        title="Arms at their end",
        columns=("arm", "J", "sd", "min", "max", "rollouts", "tokens", "CPU s", "tokens a task"),
        rows=tuple(rows),
        note="J: greedy success on sealed tasks, mean of (family, level) cells. Means over seeds.",
    )


def _comparison_table(budget: Budget, comparisons: Sequence[Comparison]) -> Table:
    rows = []
    for c in comparisons:
        if c.budget is budget:
            figure = c.figures()[0]
            name = c.control if c.arm == c.control else f"{c.control} ({c.arm.removeprefix('stagewise_')})"
            rows.append(
                (
                    name,
                    round(np.mean(c.spending)),
                    float(np.mean(c.co)),
                    float(np.mean(c.other)),
                    figure.value,
                    figure.low,
                    _mde(c.differences) if len(c.seeds) > 1 else None,
                )
            )
    notes = {
        Budget.EPISODES: "Both at their end.",
        Budget.TOKENS: "Both at the smaller of their two totals; the randomized control at its end even where it spent more.",
        Budget.CPU: "As for tokens, in CPU seconds.",
    }
    return Table(
        title=f"J({ASYNC}) − J(control) at equal {budget}",
        columns=("control", f"{budget} each", f"J({ASYNC})", "J(control)", "difference", "lower bound", "detectable"),
        rows=tuple(rows),
        note=f"{notes[budget]} Paired by seed, {BOUND}; detectable: least true difference found with 80 % chance.",
    )


def _claim_table(comparisons: Sequence[Comparison], votes: Sequence[Figure], null: Figure) -> Table:
    bounds = [figure.low for c in comparisons for figure in c.figures()[:1]]
    num_above = sum(low is not None and low > 0 for low in bounds)
    has_all = len(bounds) == len(CONTROLS) * len(Budget)
    no_alarm = null.low is None or null.low <= FDR_ALPHA
    above_votes = bool(votes) and all(figure.low is not None and figure.low > 0 for figure in votes)
    holds = has_all and num_above == len(bounds) and no_alarm and above_votes
    return Table(
        title="Claim: co-evolution is better than every control",
        columns=("condition", "holds", "detail"),
        rows=(
            ("every lower bound above 0, in all three tables", _yes(has_all and num_above == len(bounds)),
             f"{num_above} of {len(CONTROLS) * len(Budget)} bounds"),
            ("the vote of the base lies below the champion", _yes(above_votes), f"{len(votes)} votes measured"),
            ("no alarm of the A/A tests", _yes(no_alarm), null.note),
            ("claim", _yes(holds), "made only where all of the above hold"),
        ),
    )  # fmt: skip


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _harness_table(results: Results) -> Table:
    rows = []
    for arm, by_seed in results.items():
        for seed, result in by_seed.items():
            prompt, episode = result["harness"]["prompt"], result["harness"]["episode"]
            formats = ", ".join(f"{family} {name}" for family, name in sorted(prompt["formats"].items()))
            rows.append(
                (arm, seed, result["champion"]["serving"], prompt["template"], prompt["hint"], episode["num_distractors"],
                 formats)
            )  # fmt: skip
    return Table(
        title="The champions' harnesses",
        columns=("arm", "seed", "serving", "template", "hint", "distractors", "formats"),
        rows=tuple(rows),
    )
