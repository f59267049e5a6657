"""The studies of changing weights and of students: their smokes run, and their bars name figures that they have."""

from pathlib import Path

import numpy as np
import pytest

from coharness.records.errors import ConfigError
from coharness.studies.bars import read_bars
from coharness.studies.contract import Study, StudyError
from coharness.studies.place import load_study, locate
from coharness.studies.table import table_text
from experiments.reward.llmbar import data_file
from experiments.reward.weights.arms import ARMS, BUDGET, SCHEDULE, Training, candidates, phases_mean
from experiments.reward.weights.world import CRITERIA, World

ROOT = Path(__file__).resolve().parents[3]


def study_of(name: str) -> Study:
    return load_study(locate(ROOT / "experiments" / "reward" / name))


@pytest.mark.parametrize("name", ["weights", "distillation"])
def test_the_smoke_has_what_the_bars_name(name: str, tmp_path: Path) -> None:
    if name == "distillation":
        try:
            data_file()
        except StudyError as error:
            pytest.skip(str(error))
    study = study_of(name)
    assert isinstance(study, Study)
    assert study.name == f"reward/{name}"
    with pytest.raises(ConfigError, match="leave --rollouts out"):
        study.budget(quick=False, rollouts=100)
    seeds = range(2) if name == "weights" else [0]
    cells = study.cells(seeds, quick=True, rollouts=None)
    summary = study.summarise({cell: study.run_cell(cell, tmp_path) for cell in cells})
    figures = {figure.name for figure in summary.figures}
    assert {bar.figure for bar in read_bars(ROOT / "experiments" / "reward" / name / "bars.json")} <= figures
    assert all(table_text(table) for table in summary.tables)


def training(name: str) -> Training:
    world = World.draw(np.random.default_rng(5))
    return Training(world=world, rng=np.random.default_rng(len(name)), skills=world.first.copy())


@pytest.mark.parametrize("name", sorted(ARMS))
def test_no_arm_spends_more_than_the_budget(name: str) -> None:
    made = training(name)
    ARMS[name](made)
    assert -1 <= made.left < 1, "what is measured is paid from the same budget, down to its end"
    assert np.isfinite(made.skills).all()


def test_the_worth_is_what_the_readme_says() -> None:
    world = World.draw(np.random.default_rng(1))
    form, correct, robust, brief, flattering = 0.8, 0.6, 0.5, 0.3, 0.75
    core = form**world.format_power * (world.plain_share * correct + (1 - world.plain_share) * correct * robust)
    expected = (1 - world.brief_value) * core * (1 - world.flattery_cost * 0.5) + world.brief_value * brief
    assert world.worth(np.asarray([form, correct, robust, brief, flattering])) == pytest.approx(expected)
    settled = world.anchors(4_000, np.random.default_rng(2))
    assert settled.shape == (4_000, len(CRITERIA))
    # Nine in ten are settled rightly, so that what truth counts most points the right way on average.
    assert settled.mean(axis=0)[1] > 0.1


def test_the_mean_of_the_phases_is_a_fixed_point_of_the_simplex_and_the_grid_is_whole() -> None:
    made = training("mean")
    phases_mean(made)
    assert made.left < 1
    weights = np.asarray([[SCHEDULE.at((n + 0.5) / BUDGET)[name] for name in CRITERIA] for n in range(BUDGET)])
    assert weights.sum(axis=1) == pytest.approx(np.ones(BUDGET))
    assert len(candidates()) == 71
    assert candidates().sum(axis=1) == pytest.approx(np.ones(71))
