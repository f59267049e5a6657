"""Rules of a trained member's hyperparameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.config.schema import TrainingSection
from coharness.spaces.training_space import initial_hyperparameters, job_hyperparameters, training_space


def test_the_first_member_starts_where_the_config_says() -> None:
    config = TrainingSection(initial_learning_rate=7e-4, weight_decay=0.01)
    assert initial_hyperparameters(training_space(config), config, 0, seed=3) == {
        "learning_rate": 7e-4,
        "temperature": 1.0,
        "weight_decay": 0.01,
    }


def test_weight_decay_is_a_hyperparameter_only_where_it_is_used() -> None:
    assert "weight_decay" not in training_space(TrainingSection())


def test_the_first_temperature_is_the_nearest_to_one_that_the_range_has() -> None:
    config = TrainingSection(temperature=(0.6, 0.8))
    assert initial_hyperparameters(training_space(config), config, 0, seed=0)["temperature"] == 0.8


@given(st.integers(1, 200), st.integers(0, 2**40))
def test_every_member_starts_inside_the_space_as_a_function_of_seed_and_index(index: int, seed: int) -> None:
    config = TrainingSection(weight_decay=0.1)
    space = training_space(config)
    drawn = initial_hyperparameters(space, config, index, seed)
    assert drawn == initial_hyperparameters(space, config, index, seed)
    for name, value in drawn.items():
        space[name].check(value)


def test_members_start_apart() -> None:
    config = TrainingSection()
    rates = {initial_hyperparameters(training_space(config), config, i, 0)["learning_rate"] for i in range(16)}
    assert len(rates) == 16
    assert min(rates) < 7e-4 < 1.2e-3 < max(rates)


def test_a_range_of_one_value_fixes_it() -> None:
    config = TrainingSection(learning_rate=(5e-4, 5e-4))
    space = training_space(config)
    assert initial_hyperparameters(space, config, 5, 1)["learning_rate"] == pytest.approx(5e-4)


def test_what_the_config_names_as_a_gene_has_a_space_and_starts_at_its_configured_value() -> None:
    config = TrainingSection(
        objective="grpo",
        group_size=4,
        kl_coefficient=0.05,
        mix={"sft": 0.1},
        genes={"kl_coefficient": (0.01, 0.1), "mix": (0.1, 10)},
    )
    space = training_space(config)
    assert {"kl_coefficient", "mix"} <= space.keys()
    first = initial_hyperparameters(space, config, 0, seed=0)
    assert (first["kl_coefficient"], first["mix"]) == (0.05, 1.0)
    other = initial_hyperparameters(space, config, 1, seed=0)
    assert other["kl_coefficient"] != 0.05


def test_without_genes_the_space_is_what_it_was() -> None:
    assert set(training_space(TrainingSection(objective="grpo", group_size=4))) == {"learning_rate", "temperature"}


def test_a_job_is_told_its_phase_where_objectives_follow_each_other() -> None:
    plain = TrainingSection()
    assert job_hyperparameters(plain, {"learning_rate": 1e-3}, 7) == {"learning_rate": 1e-3}
    phased = TrainingSection.model_validate({"schedule": [{"objective": "sft", "updates": 2}]})
    assert [job_hyperparameters(phased, {}, updates)["phase"] for updates in range(4)] == [0.0, 0.0, 1.0, 1.0]
