"""The search over GRPO's hyperparameters: its member is a trainable whose state is all in its checkpoints, its cells go on where
they were stopped, and its summary says no more than its intervals do."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
from scipy import stats

from coharness.records.errors import ConfigError
from coharness.studies.bars import read_bars
from coharness.studies.contract import Cell, StudyError
from coharness.studies.place import load_study, locate
from coharness.tune.api import drive
from coharness.tune.config import load_tune_config
from coharness.tune.core import Context
from coharness.tune.engine import SearchEnd
from coharness.tune.files import SearchDir
from coharness.tune.replay import replay
from coharness.tune.schedule import play, read_schedule
from coharness.tune.state import SearchState
from experiments.pbt.member import GrpoMember, Workshop
from experiments.pbt.study import ARMS, INTERVALS, STUDY, SearchCell, run_config, search_config, temporary_files_in
from experiments.pbt.summary import summarise, verdict

ROOT = Path(__file__).resolve().parents[3]
SETTING = {"learning_rate": 3e-4, "kl_coefficient": 0.02, "group_size": 8, "temperature": 0.9}


def small(**changes: Any) -> dict[str, Any]:
    constants = {
        "run": run_config(quick=True),
        "updates_per_reading": 2,
        "reading_per_cell": 2,
        "reading_seed": 1,
        "sealed_at": 0,
    }
    return {**SETTING, **constants, **changes}


def steps(member: GrpoMember, num: int) -> list[Mapping[str, float]]:
    return [member.step() for _ in range(num)]


def test_a_member_that_was_saved_and_loaded_goes_on_as_if_it_had_stayed(tmp_path: Path) -> None:
    with temporary_files_in(tmp_path / "scratch"):
        stayed = GrpoMember(small(), 7)
        first = steps(stayed, 1)
        (tmp_path / "saved").mkdir()
        stayed.save(tmp_path / "saved")
        loaded = GrpoMember(small(), 8)
        steps(loaded, 2)
        loaded.load(tmp_path / "saved")
        rest = steps(stayed, 2)
        assert steps(loaded, 2) == rest
        # The second update ends an interval: two updates of 64 episodes, two tasks of each of four cells.
        assert rest[0]["episodes"] == 2 * 64 + 2 * 4
        assert "score" not in first[0]
        assert "score" not in rest[1]
        loaded.load(tmp_path / "saved")
        loaded.reseed(9)
        assert steps(loaded, 2) != rest


def test_group_size_temperature_and_the_trainers_settings_are_those_of_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, float]] = []
    run = Workshop.run

    def seen(shop: Workshop, version: Any, items: Any) -> Any:
        asked.append((len(items), items[0].group_size, items[0].temperature))
        return run(shop, version, items)

    monkeypatch.setattr(Workshop, "run", seen)
    with temporary_files_in(tmp_path / "scratch"):
        member = GrpoMember(small(), 7)
        member.step()
        wanted = small(group_size=16, temperature=1.1, learning_rate=1e-5, kl_coefficient=0.1)
        assert member.apply(wanted) == wanted
        member.step()
        assert asked[:2] == [(8, 8, 0.9), (4, 16, 1.1)], "an update spends 64 episodes, whatever the group size"
        with pytest.raises(
            ValueError, match="group_size: got 12, expected a whole number of 2 or more that divides the 64"
        ):
            member.apply(small(group_size=12))


def cell_of(arm: str) -> Cell:
    return next(cell for cell in STUDY.cells([3], quick=True, rollouts=None) if cell.arm == arm)


def test_a_stopped_cell_goes_on_to_the_same_result_and_its_schedule_is_what_happened(tmp_path: Path) -> None:
    # A threshold that is always reached, so that the path goes through a clone.
    cell = cell_of("posterior")
    search = {
        **cell.config["search"],
        "selection": {"type": "tournament", "duel": "score"},
        "budget": {"steps": 2, "minutes": 60},
    }
    cell = replace(cell, config={**cell.config, "search": search})
    peace = SearchCell(cell, tmp_path / "peace").run()

    stopped = SearchCell(cell, tmp_path / "stopped")
    folder = stopped._opened()
    config = load_tune_config(folder.config_path)
    seen: list[SearchState] = []
    with temporary_files_in(tmp_path / "stopped" / "scratch"):
        end, _ = drive(folder, config, on_event=seen.append, should_stop=lambda: len(seen) >= 2)
    assert end is SearchEnd.STOPPED
    again = SearchCell(cell, tmp_path / "stopped").run()
    assert {**again, "cpu_s": {}} == {**peace, "cpu_s": {}}
    assert json.loads(json.dumps(peace)) == peace
    assert peace["episodes"] == 4 * (64 + 4 * 4)

    made = SearchDir.open(tmp_path / "peace" / "search")
    assert replay(made, Context.of(config)).num_reports == 4
    with temporary_files_in(tmp_path / "scratch"):
        assert play(read_schedule(tmp_path / "peace" / "schedule.json")).difference == ""


# What is run --------------------------------------------------------------------------------------------------------


def test_arms_differ_in_selection_alone_and_spend_what_they_may() -> None:
    run = run_config(quick=False)
    made = {arm: search_config(arm, 2, run, 25_600, quick=False) for arm in ARMS}
    for arm, config in made.items():
        assert {k: v for k, v in config.items() if k not in ("selection", "genes")} == {
            k: v for k, v in made["random"].items() if k not in ("selection", "genes")
        }, arm
    assert (made["random"]["selection"]["type"], made["selection_only"]["genes"]) == ("none", "keep")
    config = made["posterior"]
    reading = config["constants"]["reading_per_cell"] * 4
    spent = INTERVALS * (config["interval"] * 256 + reading)
    assert config["budget"]["steps"] == INTERVALS * config["interval"]
    assert spent == 25_600
    assert config["constants"]["updates_per_reading"] == config["interval"]


def test_a_budget_without_room_for_an_update_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"4000 episodes of a member leave no update of 256 .* use --rollouts 5120 or more"
    ):
        STUDY.cells([0], quick=False, rollouts=4000)
    assert STUDY.cells([0], quick=False, rollouts=5120)


def test_the_search_by_itself_is_a_config_of_coharness_tune() -> None:
    config = load_tune_config(ROOT / "experiments" / "pbt" / "search.yaml")
    assert config.constants["updates_per_reading"] == config.interval
    assert set(config.space) == set(SETTING)


def test_the_study_is_found_by_its_path_and_its_bars_name_its_figures() -> None:
    study = load_study(locate("experiments/pbt", ROOT))
    assert study.num_seeds >= 5
    names = {figure.name for figure in summarise(cells({arm: [0.6] * 5 for arm in ARMS})).figures}
    bars = read_bars(ROOT / "experiments" / "pbt" / "bars.json")
    assert {bar.figure for bar in bars} <= names
    assert all(bar.seeds >= 5 for bar in bars)


# What is made of it -------------------------------------------------------------------------------------------------


def result(found: float, clean: tuple[float, ...], episodes: float = 1000.0) -> dict[str, Any]:
    return {
        "sealed": {"cells": [["a", 1], ["b", 1]], "base": [0.4, 0.6], "best": [found - 0.1, found + 0.1]},
        "clean": [{"sealed": value} for value in clean],
        "best": {},
        "path": [{**SETTING, "updates": 3}, {**SETTING, "learning_rate": 1e-4, "updates": 3}],
        "readings": [], "episodes": episodes, "intervals": 6, "copies": 1, "failures": 0,
        "cpu_s": {"search": 9.0, "clean": 3.0},
    }  # fmt: skip


def cells(arms: dict[str, list[float]]) -> dict[Cell, dict[str, Any]]:
    return {
        Cell(arm=arm, seed=seed, config={}): result(value, (value - 0.02, value + 0.02))
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    }


RANDOM, POSTERIOR = [0.61, 0.58, 0.66, 0.60, 0.63], [0.63, 0.62, 0.66, 0.65, 0.64]


def test_differences_are_paired_by_search_seed() -> None:
    made = {f.name: f for f in summarise(cells({"random": RANDOM, "posterior": POSTERIOR})).figures}
    differences = [b - a for a, b in zip(RANDOM, POSTERIOR, strict=True)]
    half = stats.t(4).ppf(0.975) * stdev(differences) / 5**0.5
    over = made["schedule_over_random/posterior"]
    assert (over.value, over.low, over.high) == pytest.approx(
        (mean(differences), mean(differences) - half, mean(differences) + half)
    )
    assert over.seeds == (0, 1, 2, 3, 4)
    assert made["gain/random"].value == pytest.approx(mean(RANDOM) - 0.5)
    assert made["episodes_by_random/posterior"].value == 1.0


def test_unequal_episodes_show_in_the_seed_furthest_off() -> None:
    made = cells({"random": RANDOM, "posterior": POSTERIOR})
    odd = next(cell for cell in made if cell.arm == "posterior" and cell.seed == 3)
    made[odd] = {**made[odd], "episodes": 900.0}
    assert {f.name: f.value for f in summarise(made).figures}["episodes_by_random/posterior"] == pytest.approx(0.9)


def test_no_winner_is_named_where_the_interval_for_all_comparisons_holds_zero() -> None:
    values = [0.02, 0.04, 0.005, 0.05, 0.01]
    p = stats.ttest_1samp(values, 0).pvalue
    assert 0.05 / 3 < p < 0.05, "significant alone, not among three"
    assert verdict(values, 1) == "above"
    assert verdict(values, 3) == "undecided"
    assert verdict([-v for v in values], 1) == "below"
    assert verdict([0.5], 1) == "undecided"


def test_arms_under_other_seeds_or_with_another_base_are_refused() -> None:
    with pytest.raises(StudyError, match="compared by search seed with random"):
        summarise(cells({"random": RANDOM, "posterior": POSTERIOR[:4]}))
    with pytest.raises(StudyError, match="compared by search seed with random"):
        summarise(cells({"posterior": POSTERIOR}))
    made = cells({"random": RANDOM, "posterior": POSTERIOR})
    first = next(iter(made))
    made[first] = {**made[first], "sealed": {**made[first]["sealed"], "base": [0.1, 0.2]}}
    with pytest.raises(StudyError, match="another base"):
        summarise(made)
