"""A member's path through clones and merges, made again as one clean run."""

from dataclasses import replace
from pathlib import Path

import pytest

from coharness.records.errors import ConfigError
from coharness.tune.api import search
from coharness.tune.core import best_member
from coharness.tune.engine import fold_journal
from coharness.tune.schedule import Schedule, play, read_schedule, schedule_of, write_schedule
from tests.unit.tune.small import Climber, Forgetful, Plain, config, context

NICHES = {"selection": {"type": "niches", "merge": True}, "score": {"cases": ["score", "half"]}}


def best_schedule(folder: Path) -> tuple[Schedule, float]:
    found, ctx = context(folder)
    state = fold_journal(found, ctx)
    best = best_member(state)
    assert best is not None
    return schedule_of(state, ctx.config, best[0]), best[1]


@pytest.mark.parametrize("kind", [Climber, Plain])
def test_a_clean_run_of_a_schedule_gives_the_recorded_numbers(tmp_path: Path, kind: type) -> None:
    search(config(tmp_path / "a", kind=kind, budget={"steps": 36}))
    schedule, score = best_schedule(tmp_path / "a")
    assert len({s.id.split("-")[0] for s in schedule.stretches}) > 1, "the path goes through a clone"
    assert all(len(s.parents) <= 1 for s in schedule.stretches)
    played = play(schedule)
    assert played.difference == ""
    assert played.metrics["score"] == score
    assert 30 <= played.num_steps <= 36, "a clone may come from a member that was an interval behind"


def test_a_path_through_merges_is_played_on_all_its_branches(tmp_path: Path) -> None:
    search(config(tmp_path / "a", budget={"steps": 36}, **NICHES))
    folder, ctx = context(tmp_path / "a")
    state = fold_journal(folder, ctx)
    child = [name for name, made in state.segments.items() if len(made.parents) == 2][-1]
    schedule = schedule_of(state, ctx.config, child)
    played = play(schedule)
    assert (played.difference, played.metrics) == ("", state.segments[child].metrics)
    assert played.num_steps > state.segments[child].steps + sum(
        state.segments[p].steps for p, _ in state.segments[child].parents
    )


def test_a_checkpoint_that_misses_something_is_found_out(tmp_path: Path) -> None:
    # With two members in memory at most, others come from their checkpoints, which miss the generator here.
    pool = {"type": "inline", "max_resident": 1}
    search(config(tmp_path / "a", kind=Forgetful, pool=pool, budget={"steps": 36}))
    assert "the clean run gives" in play(best_schedule(tmp_path / "a")[0]).difference


def test_another_seed_is_another_run_of_the_same_settings(tmp_path: Path) -> None:
    search(config(tmp_path / "a"))
    schedule, score = best_schedule(tmp_path / "a")
    one, two = play(schedule, seed=1), play(schedule, seed=2)
    assert one.metrics != two.metrics
    assert one.metrics["score"] == pytest.approx(score, abs=1.5)
    assert play(schedule, seed=1) == one


def test_a_changed_setting_or_number_is_noticed(tmp_path: Path) -> None:
    search(config(tmp_path / "a"))
    schedule, _ = best_schedule(tmp_path / "a")
    first = schedule.stretches[0]
    changed = replace(first, hyperparameters={"rate": first.hyperparameters["rate"] + 0.01})
    found = play(replace(schedule, stretches=(changed, *schedule.stretches[1:])))
    assert found.difference.startswith(f"{first.id}: ")
    assert play(replace(schedule, stretches=(changed, *schedule.stretches[1:])), tolerance=10.0).difference == ""


def test_a_schedule_survives_its_file(tmp_path: Path) -> None:
    search(config(tmp_path / "a"))
    schedule, _ = best_schedule(tmp_path / "a")
    write_schedule(tmp_path / "schedule.json", schedule)
    assert read_schedule(tmp_path / "schedule.json") == schedule
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read as a schedule"):
        read_schedule(tmp_path / "bad.json")
    folder, ctx = context(tmp_path / "a")
    with pytest.raises(ConfigError, match="no checkpoint 'p9-9'"):
        schedule_of(fold_journal(folder, ctx), ctx.config, "p9-9")
