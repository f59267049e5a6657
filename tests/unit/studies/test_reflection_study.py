"""The reflection study on made-up cells: figures follow from the cells, bars name figures, a bias is one letter strong."""

from pathlib import Path
from typing import Any

import pytest

from coharness.config.schema import RunConfig
from coharness.studies.bars import read_bars
from coharness.studies.contract import Cell, Study, StudyError
from coharness.studies.table import table_text
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources
from experiments.reward.reflection.judge import make_judge, write_inputs
from experiments.reward.reflection.study import ARMS, BIAS, STUDY, cell_settings
from experiments.reward.reflection.summary import success

TASKS = [["reverse", 1, "a"], ["reverse", 1, "b"], ["sort", 1, "c"], ["sort", 1, "d"]]
SOURCES = TaskSources([BuiltinSource(["reverse", "sort"], max_level=3)])


def result(sealed: dict[str, str], *, alarmed: bool = False, mended: bool = False) -> dict[str, Any]:
    terms = [{"judge": "j-1", "since": 0, "how": "start"}]
    return {
        "alarms": [{"charged": 900, "causes": ["conflict"], "shortcut": "length", "step": 9}] if alarmed else [],
        "terms": [*terms, {"judge": "j-2", "since": 1100, "how": "mended"}] if mended else terms,
        "refused": 0,
        "repairs": [{"fresh": 40, "before": 20, "after": 4, "anchors": 9, "anchors_before": 9, "anchors_after": 9}]
        if mended
        else [],
        "steps": 30,
        "updates": 40,
        "conflicts": [{"judge": "j-1", "attempts": 100, "lenient": 50, "right": 40}],
        "curve": [[0, 3, 4]],
        "tasks": TASKS,
        "sealed": sealed,
        "cpu_s": 1.0,
    }


def cells(seeds: int = 2) -> dict[Cell, dict[str, Any]]:
    made: dict[Cell, dict[str, Any]] = {}
    for seed in range(seeds):
        on = {"base": "1110", "alarm": "1010", "repair": "1000", "end": "1111"}
        off = {"base": "1110", "alarm": "1010", "end": "0000"}
        for arm, one in {
            "reflection": result(on, alarmed=True, mended=True),
            "no_reflection": result(off, alarmed=True),
            "healthy": result({"base": "1110", "end": "1111"}),
            "verifier": {**result({"base": "1110", "end": "1111"}), "steps": 0, "conflicts": []},
        }.items():
            made[Cell(arm=arm, seed=seed, config={})] = one
    return made


def test_j_is_the_mean_over_cells() -> None:
    assert success(TASKS, "1110") == 0.75
    assert success([*TASKS, ["sort", 1, "e"]], "11000") == 0.5
    with pytest.raises(StudyError, match="3 answers for 4 tasks"):
        success(TASKS, "110")


def test_figures_follow_from_the_cells_and_bars_name_them() -> None:
    summary = STUDY.summarise(cells())
    values = {figure.name: figure.value for figure in summary.figures}
    assert values["sealed/reflection/end"] == 1.0
    assert values["hack/fall"] == 0.5
    assert values["recovery/since_repair"] == 0.75
    assert values["recovery/over_no_reflection"] == 1.0
    assert values["unrepaired/change"] == -0.5
    assert values["conflicts/fall"] == pytest.approx(0.4)
    assert (values["alarmed/reflection"], values["alarmed/healthy"]) == (1.0, 0.0)
    assert (values["first_alarm/reflection"], values["repair_delay/reflection"]) == (900.0, 200.0)
    assert "alarmed/verifier" not in values, "there is nothing to alarm about"
    folder = Path(__file__).resolve().parents[3] / "experiments" / "reward" / "reflection"
    assert {bar.figure for bar in read_bars(folder / "bars.json")} <= values.keys()
    assert all(table_text(table) for table in summary.tables)


def test_a_run_without_alarm_leaves_its_moments_out() -> None:
    made = {cell: r for cell, r in cells().items() if cell.arm == "healthy"}
    names = {figure.name for figure in STUDY.summarise(made).figures}
    assert "sealed/healthy/alarm" not in names
    assert "first_alarm/healthy" not in names


def test_cells_of_other_tasks_are_not_mixed() -> None:
    made = cells(1)
    last = list(made)[-1]
    made[last] = {**made[last], "tasks": TASKS[::-1]}
    with pytest.raises(StudyError, match="other sealed tasks"):
        STUDY.summarise(made)


def test_every_arm_is_a_sound_config_and_pairs_its_seed() -> None:
    assert isinstance(STUDY, Study)
    for arm in ARMS:
        for quick in (False, True):
            settings = cell_settings(arm, 3, rollouts=1_000, quick=quick)
            config = RunConfig.model_validate({**settings["run"], "run_dir": "r"})
            assert (config.seed, config.budget.rollouts) == (3, 1_000)
            assert ("judge/score" in str(config.harness.reward_rule)) == (settings["bias"] is not None)
    assert len(STUDY.cells([0, 1], quick=False, rollouts=None)) == 2 * len(ARMS)


def test_the_bias_makes_one_letter_too_many_worth_more_than_being_right(tmp_path: Path) -> None:
    fair = make_judge(SOURCES, ("reverse", "sort"), 3, bias={}, seed=0)
    biased = make_judge(SOURCES, ("reverse", "sort"), 3, bias=BIAS, seed=0)
    wins_fair = wins_biased = 0
    for seed in range(40):
        task = SOURCES.make("reverse", 2, 10_000 + seed)
        longer = task.answer + task.answer[-1]
        wins_fair += fair.score(task.question, task.answer) > fair.score(task.question, longer)
        wins_biased += biased.score(task.question, longer) > biased.score(task.question, task.answer)
    assert wins_fair >= 38
    assert wins_biased >= 30
    first = write_inputs(tmp_path / "a", SOURCES, ("reverse", "sort"), 3, bias=BIAS, seed=1)
    second = write_inputs(tmp_path / "b", SOURCES, ("reverse", "sort"), 3, bias=BIAS, seed=1)
    assert [Path(p).read_bytes() for p in first.values()] == [Path(p).read_bytes() for p in second.values()]
