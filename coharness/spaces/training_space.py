"""The hyperparameters of a trained member: which exist, where they may move, and where a run's members start.

Invariants: names are those the trainer reads from `TrainJob.hyperparameters` and the core from `WorkItem.temperature`. The
first member starts at the config's own values, so that a population always contains the setting that the user wrote.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from coharness.config.schema import TrainingSection
from coharness.records.ids import derive_seed
from coharness.spaces.space import Float, Scale

LEARNING_RATE: Final = "learning_rate"
TEMPERATURE: Final = "temperature"
WEIGHT_DECAY: Final = "weight_decay"
PHASE: Final = "phase"
"""Place in `training.schedule`; no gene, it follows from how often the member was trained."""

_DECAY_FACTOR: Final = 10.0
"""Weight decay may move this far from its configured value, either way; it acts by its order of magnitude."""
JITTER: Final = 0.1
"""Share of a range by which a member's first value strays from its place."""
_GOLDEN: Final = 0.6180339887498949
"""Multiples of it, modulo 1, leave no large gap and no small one, however many there are (Kronecker sequence)."""


def training_space(config: TrainingSection) -> dict[str, Float]:
    """The spaces by name: the learning rate (log), the decoding temperature (linear), the weight decay (log) where not 0.

    What `training.genes` names joins them (log).
    """
    space: dict[str, Float] = {
        LEARNING_RATE: Float(low=config.learning_rate[0], high=config.learning_rate[1], scale=Scale.LOG),
        TEMPERATURE: Float(low=config.temperature[0], high=config.temperature[1]),
    }
    if config.weight_decay > 0:
        space[WEIGHT_DECAY] = Float(
            low=config.weight_decay / _DECAY_FACTOR, high=config.weight_decay * _DECAY_FACTOR, scale=Scale.LOG
        )
    for name, (low, high) in config.genes.items():
        space[name] = Float(low=low, high=high, scale=Scale.LOG)
    return space


def job_hyperparameters(config: TrainingSection, values: Mapping[str, float], updates: int) -> dict[str, float]:
    """What a job is told: the member's hyperparameters, and its phase where objectives follow each other.

    Args:
        config: Has the schedule.
        values: The member's hyperparameters.
        updates: How many it has been through along its line.
    """
    return {**values, PHASE: float(config.phase_of(updates))} if config.schedule else dict(values)


def initial_hyperparameters(
    space: Mapping[str, Float], config: TrainingSection, index: int, seed: int
) -> dict[str, float]:
    """Where member `index` of a run starts; a pure function of its arguments.

    Args:
        space: What `training_space(config)` gave.
        config: Member 0 takes its values, and the temperature nearest to 1.
        index: The member's place in the initial population.
        seed: The run's seed.

    Returns:
        One value for each name of `space`. The members' values stand a golden section apart in the transformed range, modulo the
        range, give or take JITTER: independent draws of so few would now and then begin all at one place, and selection would
        have nothing to choose from.
    """
    configured: dict[str, float] = {
        LEARNING_RATE: config.initial_learning_rate,
        TEMPERATURE: 1.0,
        WEIGHT_DECAY: config.weight_decay,
        **{name: config.configured_gene(name) for name in config.genes},
    }
    values = {name: kind.clip(configured[name]) for name, kind in space.items()}
    if index == 0:
        return values
    for name, kind in space.items():
        rng = np.random.default_rng(derive_seed("hyperparameters", seed, index, name))
        place = (kind.share(values[name]) + index * _GOLDEN) % 1.0 + JITTER * float(rng.uniform(-1, 1))
        values[name] = kind.at(min(max(place, 0.0), 1.0))
    return values
