"""What a cell's champion could do, as a function of what its run had spent: the curve that arms are compared on.

A curve starts at the untouched base and goes through the champions at the milestones to the last one; between two points it is
linear. One arm has no such curve: the randomized control picks its harness only at the end, so whatever it served before says
nothing about it. Where it spent more than the budget of a comparison, it is credited with what it could do at its end.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from coharness.studies.contract import StudyError


class Budget(StrEnum):
    """What arms are given the same amount of."""

    EPISODES = "episodes"
    "Charged episodes: each arm at its end, as all have the same budget of them."
    TOKENS = "tokens"
    "Tokens of charged episodes, prompts included."
    CPU = "cpu"
    "CPU seconds of rollout, training and decision code."

    @property
    def key(self) -> str:
        """Its name in a cell's result."""
        return {Budget.EPISODES: "rollouts", Budget.TOKENS: "tokens", Budget.CPU: "cpu_s"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """J against spending, for one cell and one budget."""

    spent: tuple[float, ...]
    "Strictly growing, from 0."
    success: tuple[float, ...]

    @property
    def total(self) -> float:
        """All that the run spent."""
        return self.spent[-1]

    @property
    def end(self) -> float:
        """J of the last champion."""
        return self.success[-1]

    def at(self, spent: float) -> float:
        """J at this spending; beyond the end what it was at the end."""
        return float(np.interp(spent, self.spent, self.success))


def success_rate(tasks: Sequence[Sequence[Any]], correct: str) -> float:
    """J: the mean over (family, level) cells of the share of their tasks that are solved.

    Raises:
        StudyError: not one digit a task.
    """
    if len(tasks) != len(correct):
        raise StudyError(f"a cell has {len(correct)} answers for {len(tasks)} sealed tasks; run it again")
    cells: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (family, level, _), digit in zip(tasks, correct, strict=True):
        cells[family, level].append(digit == "1")
    return float(np.mean([np.mean(solved) for solved in cells.values()]))


def curve_of(result: Mapping[str, Any], budget: Budget) -> Curve:
    """The curve of a cell's result."""
    tasks, key = result["tasks"], budget.key
    total = float(result["spent"][key])
    spent, success = [0.0], [success_rate(tasks, result["base"]["correct"])]
    for milestone in result["milestones"]:
        at = float(milestone[key])
        if spent[-1] < at < total:
            spent.append(at)
            success.append(success_rate(tasks, milestone["correct"]))
    end = success_rate(tasks, result["champion"]["correct"])
    if total > spent[-1]:
        return Curve(spent=(*spent, total), success=(*success, end))
    # The run spent nothing, as a frozen one does.
    return Curve(spent=(0.0,), success=(end,))


def compare(co: Curve, control: Curve, budget: Budget, *, chosen_at_end: bool) -> tuple[float, float, float]:
    """J of co-evolution and of a control at the same spending, and that spending.

    Args:
        co: the curve of co-evolution.
        control: the control's.
        budget: what is held equal; at equal episodes each arm stands at its own end.
        chosen_at_end: the control has no curve; it is credited with its end.

    Returns:
        (J of co-evolution, J of the control, spending): the smaller of both totals; a control that spends nothing is compared
        at all that co-evolution spends.
    """
    if budget is Budget.EPISODES:
        return co.end, control.end, co.total
    spending = min(co.total, control.total) if control.total > 0 else co.total
    return co.at(spending), control.end if chosen_at_end else control.at(spending), spending
