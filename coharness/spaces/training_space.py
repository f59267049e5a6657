"""The hyperparameters of a trained member: which exist, where they may move, and where a run's members start.

Invariants: names are those the trainer reads from `TrainJob.hyperparameters` and the core from `WorkItem.temperature`. The
first member starts at the config's own values, so that a population always contains the setting that the user wrote.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from coharness.config.schema import TrainingSection
from coharness.records.ids import derive_seed
from coharness.spaces.space import Float, Scale, Space

LEARNING_RATE: Final = "learning_rate"
TEMPERATURE: Final = "temperature"
WEIGHT_DECAY: Final = "weight_decay"

_DECAY_FACTOR: Final = 10.0
"""Weight decay may move this far from its configured value, either way; it acts by its order of magnitude."""


def training_space(config: TrainingSection) -> dict[str, Space]:
    """The spaces by name: the learning rate (log), the decoding temperature (linear), the weight decay (log) where not 0."""
    space: dict[str, Space] = {
        LEARNING_RATE: Float(low=config.learning_rate[0], high=config.learning_rate[1], scale=Scale.LOG),
        TEMPERATURE: Float(low=config.temperature[0], high=config.temperature[1]),
    }
    if config.weight_decay > 0:
        space[WEIGHT_DECAY] = Float(
            low=config.weight_decay / _DECAY_FACTOR, high=config.weight_decay * _DECAY_FACTOR, scale=Scale.LOG
        )
    return space


def initial_hyperparameters(
    space: Mapping[str, Space], config: TrainingSection, index: int, seed: int
) -> dict[str, float]:
    """Where member `index` of a run starts; a pure function of its arguments.

    Args:
        space: What `training_space(config)` gave.
        config: Member 0 takes its learning rate and weight decay, and the temperature nearest to 1.
        index: The member's place in the initial population.
        seed: The run's seed.

    Returns:
        One value for each name of `space`; uniform in the transformed space for every member but the first.
    """
    if index == 0:
        configured = {
            LEARNING_RATE: config.initial_learning_rate,
            TEMPERATURE: 1.0,
            WEIGHT_DECAY: config.weight_decay,
        }
        return {name: kind.clip(configured[name]) for name, kind in space.items()}
    return {
        name: kind.sample(np.random.default_rng(derive_seed("hyperparameters", seed, index, name)))
        for name, kind in space.items()
    }
