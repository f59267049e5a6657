"""The summary of the objectives study on made-up cells, and the record of what it runs."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from coharness.config.objectives import TRAITS
from coharness.config.schema import RunConfig
from coharness.stats.paired import paired_t_lower_bound
from coharness.studies.bars import read_bars
from coharness.studies.contract import Cell, StudyError
from coharness.studies.place import load_study, locate
from experiments.objectives.study import ARMS, run_config
from experiments.objectives.summary import kept, success, summarise

ROOT = Path(__file__).resolve().parents[3]
TASKS = [[family, level, f"{family}{level}{i}"] for family in ("a", "b") for level in (1, 2) for i in range(20)]


def answers(easy: int, hard: int) -> str:
    """So many of 20 right in each cell of level 1 and of level 2."""
    return "".join("1" if i % 20 < (easy if level == 1 else hard) else "0" for i, (_, level, _) in enumerate(TASKS))


def result(easy: int, hard: int) -> dict[str, Any]:
    curve = [{"rollouts": 0, "correct": answers(20, 2)}, {"rollouts": 100, "correct": answers(easy, hard)}]
    return {
        "tasks": TASKS, "track": TASKS, "base": answers(20, 2), "end": answers(easy, hard), "curve": curve,
        "metrics": {"kl/base": 0.1}, "updates": 3, "cpu_s": 9.0,
    }  # fmt: skip


def cells(arms: dict[str, list[tuple[int, int]]]) -> dict[Cell, dict[str, Any]]:
    return {
        Cell(arm=arm, seed=seed, config={}): result(*ends)
        for arm, seeds in arms.items()
        for seed, ends in enumerate(seeds)
    }


def test_figures_are_means_over_seeds_and_the_worst_seed_of_what_was_kept() -> None:
    made = {f.name: f for f in summarise(cells({"sft": [(20, 10), (18, 12), (19, 14)]})).figures}
    ends = [(20 + 10) / 40, (18 + 12) / 40, (19 + 14) / 40]
    assert made["J/sft"].value == pytest.approx(sum(ends) / 3)
    assert made["gain/sft"].value == pytest.approx(sum(ends) / 3 - 22 / 40)
    assert made["gain/sft"].low == pytest.approx(paired_t_lower_bound([end - 22 / 40 for end in ends]))
    assert made["easy/sft"].value == pytest.approx(18 / 20)
    assert made["easy/sft"].seeds == (0, 1, 2)


def test_a_base_without_an_easy_cell_has_none_to_keep() -> None:
    none = {**result(10, 10), "base": answers(2, 2)}
    assert kept(none) is None
    assert [f.name for f in summarise({Cell(arm="sft", seed=0, config={}): none}).figures] == ["J/sft", "gain/sft"]


def test_every_cell_of_family_and_level_counts_alike() -> None:
    tasks = [["a", 1, "x"], ["a", 1, "y"], ["a", 1, "z"], ["b", 1, "w"]]
    assert success(tasks, "1110") == 0.5
    with pytest.raises(StudyError, match="3 answers for 4 tasks"):
        success(tasks, "111")


def test_cells_that_read_other_tasks_are_refused() -> None:
    made = cells({"sft": [(20, 10), (20, 10)]})
    (first, second) = made
    made[second] = {**made[second], "tasks": TASKS[::-1]}
    with pytest.raises(StudyError, match=f"{second} read other sealed tasks, or another base, than {first}"):
        summarise(made)


def test_the_plot_is_an_svg_file_with_every_arm() -> None:
    text = summarise(cells({"sft": [(20, 10), (20, 8)], "grpo": [(20, 4), (20, 5)]})).plots["curves.svg"]
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "sft" in text
    assert "grpo" in text


def test_every_objective_has_an_arm_and_every_arm_a_bar() -> None:
    used = set()
    for arm in ARMS:
        config = RunConfig.model_validate({**run_config(arm, 0, rollouts=64, quick=False), "run_dir": "runs/x"})
        training = config.training
        used |= {name for phase in range(len(training.schedule) + 1) for name in training.parts(phase)}
        assert training.groups_per_update * training.group_size == 256
    assert used == set(TRAITS)
    bars = read_bars(ROOT / "experiments" / "objectives" / "bars.json")
    assert [bar.figure for bar in bars] == [f"easy/{arm}" for arm in ARMS]
    assert {(bar.limits, bar.seeds) for bar in bars} == {((0.95,), 3)}


def test_the_study_is_found_by_its_path() -> None:
    study = load_study(locate("experiments/objectives", ROOT))
    assert study.num_seeds >= 3
    full, quick = (study.cells(range(3), quick=quick, rollouts=None) for quick in (False, True))
    assert len(full) == 3 * len(ARMS)
    assert len(quick) < len(full)
    assert len({cell.digest for cell in full}) == len(full)
