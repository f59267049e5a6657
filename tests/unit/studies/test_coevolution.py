"""The summary of the co-evolution study on made-up cells, and the record of what it runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from coharness.stats.paired import paired_t_lower_bound
from coharness.studies.bars import read_bars
from coharness.studies.contract import Cell, StudyError, Summary
from coharness.studies.place import load_study, locate
from coharness.studies.table import table_text
from experiments.coevolution.curves import Budget, Curve, compare, curve_of, success_rate
from experiments.coevolution.study import ARMS as STUDIED
from experiments.coevolution.study import run_config
from experiments.coevolution.summary import CONTROLS, summarise

ROOT = Path(__file__).resolve().parents[3]
TASKS = [[family, level, f"{family}{level}{i}"] for family in ("a", "b") for level in (1, 2) for i in range(25)]
ARMS = ("async", "randomized", "weights_only", "weights_only_full_range", "stagewise_harness_first",
        "stagewise_weights_first", "harness_only", "frozen")  # fmt: skip


def answers(share: float) -> str:
    return "".join("1" if i % 25 < round(25 * share) else "0" for i in range(len(TASKS)))


def result(end: float, *, half: float = 0.0, total: float = 100.0, seed: int = 0) -> dict[str, Any]:
    """A cell: J 0.04 at no spending, `half` at half of it, `end` at all of it."""
    spent = {"rollouts": total, "tokens": 10 * total, "cpu_s": total / 10}
    milestone = {key: value / 2 for key, value in spent.items()} | {"correct": answers(half), "tokens_per_task": 9.0}
    champion = {"serving": "p1@3×h-1", "correct": answers(end), "tokens_per_task": 9.0}
    return {
        "spent": spent,
        "tasks": TASKS,
        "base": {"correct": answers(0.04), "tokens_per_task": 9.0},
        "champion": champion,
        "milestones": [milestone] if total else [],
        "votes": {name: {"k": 8, "correct": answers(0.12)} for name in ("vote_equal_rollouts", "vote_equal_tokens")},
        "harness": {
            "prompt": {"template": "bare", "hint": "none", "formats": {"a": "trace"}},
            "episode": {"num_distractors": 0},
        },
        "null": {"accepted": 0, "decided": 2},
    }


def cells(ends: Mapping[str, float], num_seeds: int = 3) -> dict[Cell, dict[str, Any]]:
    made = {}
    for arm, end in ends.items():
        for seed in range(num_seeds):
            total = 0.0 if arm == "frozen" else 100.0
            shifted = end + 0.04 * (seed % 2) * (arm == "async")
            made[Cell(arm=arm, seed=seed, config={})] = result(shifted, half=end / 2, total=total)
    return made


ENDS = dict(zip(ARMS, (0.92, 0.8, 0.4, 0.6, 0.52, 0.72, 0.12, 0.04), strict=True))


def figures(summary: Summary) -> dict[str, Any]:
    return {figure.name: figure for figure in summary.figures}


def test_success_is_the_mean_of_cells_of_unequal_size() -> None:
    tasks = [["a", 1, "x"], ["a", 1, "y"], ["a", 1, "z"], ["b", 1, "w"]]
    assert success_rate(tasks, "1000") == pytest.approx((1 / 3 + 0) / 2)
    with pytest.raises(StudyError, match="3 answers for 4 sealed tasks"):
        success_rate(tasks, "100")


def test_differences_are_paired_by_seed_with_a_one_sided_bound() -> None:
    found = figures(summarise(cells(ENDS)))["episodes/async-randomized"]
    expected = [0.12, 0.16, 0.12]
    assert found.value == pytest.approx(np.mean(expected))
    assert found.low == pytest.approx(paired_t_lower_bound(expected))
    assert found.high == pytest.approx(-paired_t_lower_bound([-d for d in expected]))


def test_the_better_order_of_the_stages_stands_for_the_control() -> None:
    summary = summarise(cells(ENDS))
    found = figures(summary)["episodes/async-stagewise"]
    assert found.value == pytest.approx(np.mean([0.2, 0.24, 0.2]))
    assert found.note.endswith("stagewise_weights_first")


def test_every_bar_names_a_figure_of_a_full_summary() -> None:
    found = figures(summarise(cells(ENDS)))
    bars = read_bars(ROOT / "experiments" / "coevolution" / "bars.json")
    assert {bar.figure for bar in bars} <= set(found)
    assert {f"{budget}/async-{control}" for budget in Budget for control in CONTROLS} <= {bar.figure for bar in bars}


def claim(summary: Summary) -> str:
    table = next(table for table in summary.tables if table.title.startswith("Claim"))
    return str(table.rows[-1][1])


def test_the_claim_needs_every_bound_in_every_table() -> None:
    assert claim(summarise(cells(ENDS))) == "yes"
    assert claim(summarise(cells({**ENDS, "randomized": 0.92}))) == "no"
    assert claim(summarise(cells({arm: end for arm, end in ENDS.items() if arm != "frozen"}))) == "no"


def test_the_claim_needs_a_vote_below_the_champion_and_no_alarm() -> None:
    with_vote, alarmed = cells(ENDS), cells(ENDS)
    for cell, made in with_vote.items():
        with_vote[cell] = {**made, "votes": {}}
    assert claim(summarise(with_vote)) == "no"
    for cell, made in alarmed.items():
        alarmed[cell] = {**made, "null": {"accepted": 2, "decided": 2}}
    assert claim(summarise(alarmed)) == "no"


def test_one_seed_gives_figures_without_bounds() -> None:
    summary = summarise(cells(ENDS, num_seeds=1))
    found = figures(summary)
    assert found["episodes/async-randomized"].low is None
    assert not [name for name in found if name.endswith("/mde")]
    assert claim(summary) == "no"


def test_arms_that_read_other_tasks_cannot_be_paired() -> None:
    made = cells(ENDS)
    odd = Cell(arm="frozen", seed=1, config={})
    made[odd] = {**made[odd], "tasks": TASKS[::-1]}
    with pytest.raises(StudyError, match="frozen, seed 1 read other sealed tasks"):
        summarise(made)


CO = Curve(spent=(0.0, 50.0, 100.0), success=(0.0, 0.6, 0.8))
SLOW = Curve(spent=(0.0, 200.0), success=(0.0, 1.0))
CHEAP = Curve(spent=(0.0, 25.0), success=(0.0, 0.2))


@pytest.mark.parametrize(
    ("control", "budget", "chosen_at_end", "expected"),
    [
        (SLOW, Budget.EPISODES, False, (0.8, 1.0, 100.0)),
        (SLOW, Budget.TOKENS, False, (0.8, 0.5, 100.0)),
        (SLOW, Budget.TOKENS, True, (0.8, 1.0, 100.0)),
        (CHEAP, Budget.CPU, False, (0.3, 0.2, 25.0)),
        (CHEAP, Budget.CPU, True, (0.3, 0.2, 25.0)),
        (Curve(spent=(0.0,), success=(0.1,)), Budget.CPU, False, (0.8, 0.1, 100.0)),
    ],
)
def test_both_are_read_at_the_smaller_total(
    control: Curve, budget: Budget, chosen_at_end: bool, expected: tuple[float, float, float]
) -> None:
    assert compare(CO, control, budget, chosen_at_end=chosen_at_end) == pytest.approx(expected)


def test_a_curve_goes_from_the_base_over_the_milestones_to_the_end() -> None:
    curve = curve_of(result(0.8, half=0.4), Budget.TOKENS)
    assert curve.spent == (0.0, 500.0, 1000.0)
    assert curve.success == pytest.approx((0.04, 0.4, 0.8))
    assert curve.at(750.0) == pytest.approx(0.6)
    assert curve.at(5000.0) == curve.end


def test_the_plot_is_a_drawing_of_every_arm_and_the_tables_are_text() -> None:
    summary = summarise(cells(ENDS))
    drawn = ElementTree.fromstring(summary.plots["curves.svg"])
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    titles = {title.text or "" for title in drawn.iter("{http://www.w3.org/2000/svg}title")}
    assert {arm for arm in ARMS if any(title.startswith(f"{arm}:") for title in titles)} == set(ARMS)
    text = "\n".join(table_text(table) for table in summary.tables)
    assert "stagewise (weights_first)" in text


def test_arms_differ_in_what_they_say_they_differ_in() -> None:
    made = {arm: run_config(arm, 3, rollouts=5000, quick=False) for arm in ARMS}
    base = made["weights_only"]
    assert base["seed"] == 3
    assert base["budget"]["rollouts"] == 5000
    assert made["weights_only_full_range"] == base | {"harness": base["harness"] | {"level_high": 8}}
    assert made["randomized"] == base | {"schedule": "randomized"}
    assert (
        made["stagewise_harness_first"] | {"stagewise": {"order": "weights_first"}} == made["stagewise_weights_first"]
    )


def test_the_study_is_found_and_runs_every_arm() -> None:
    assert load_study(locate("coevolution", ROOT)).num_seeds >= 5
    assert sorted(STUDIED) == sorted(ARMS)
