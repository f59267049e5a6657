"""Rules of a trained member's hyperparameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.config.schema import TrainingSection
from coharness.spaces.training_space import initial_hyperparameters, training_space


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
