"""Switches that take one part of evolution out and leave the others as they are."""

from pathlib import Path

import pytest

from coharness.config.load import config_from
from coharness.loop.journal import read_frames
from coharness.records import events as ev
from coharness.records.errors import ConfigError
from coharness.testing.runs import simulated_run
from tests.unit.loop.handmade import begun


def clones(path: Path, **evolution: object) -> list[tuple[ev.Clone, dict[str, float]]]:
    """All clones of a run, each with what its donor had."""
    run, core = simulated_run(
        path, budget={"rollouts": 6_000}, evolution={"exploit_probability": 0.55, "merge_every": 0, **evolution}
    )
    had = {member.policy: member.hyperparameters for member in begun(path.parent / "again").state.members}
    found = []
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Clone):
                clone = event.directive
                found.append((clone, had[clone.donor.policy]))
                had[clone.child] = clone.hyperparameters
    assert core.state.versions
    return found


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[ev.Clone, dict[str, float]]]:
    """The clones of a run without a switch."""
    return clones(tmp_path_factory.mktemp("explored") / "run")


def test_without_selection_nobody_is_replaced_and_training_goes_on(
    tmp_path: Path, explored: list[tuple[ev.Clone, dict[str, float]]]
) -> None:
    assert explored
    _, core = simulated_run(
        tmp_path / "without",
        budget={"rollouts": 6_000},
        evolution={"exploit_probability": 0.55, "merge_every": 0, "exploit": "none"},
    )
    assert [m.policy for m in core.state.members] == ["p0", "p1", "p2"]
    assert all(member.updates > 0 for member in core.state.members)


def test_clones_move_what_they_inherit_unless_told_to_keep_it(
    tmp_path: Path, explored: list[tuple[ev.Clone, dict[str, float]]]
) -> None:
    kept = clones(tmp_path / "inherit" / "run", hyperparameters="inherit")
    assert explored
    assert kept
    assert all(clone.hyperparameters != had for clone, had in explored)
    assert all(clone.hyperparameters == had for clone, had in kept)


def test_fixed_hyperparameters_are_the_configs_own_in_every_member(tmp_path: Path) -> None:
    apart = begun(tmp_path / "a").state.members
    fixed = begun(tmp_path / "b", evolution={"hyperparameters": "fixed"}).state.members
    assert len({m.hyperparameters["learning_rate"] for m in apart}) == len(apart) == 3
    assert all(m.hyperparameters == apart[0].hyperparameters for m in fixed)
    assert fixed[0].hyperparameters["learning_rate"] == 1e-3


@pytest.mark.parametrize("word", ["evolution.exploit=off", "evolution.hyperparameters=frozen"])
def test_another_word_for_a_switch_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=word.split("=")[0]):
        config_from({"run_dir": "runs/x"}, [word])
