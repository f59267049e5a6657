"""What an update job asks of any trainer: its episodes, its hyperparameters, and what its version's manifest tells."""

from dataclasses import dataclass
from typing import Final, get_args

import pyarrow as pa

from coharness.config.schema import TrainingSection
from coharness.config.training import GeneName
from coharness.records.training import TrainJob
from coharness.records.work import Purpose

_HYPERPARAMETERS: Final = frozenset({"learning_rate", "weight_decay", "temperature", "phase", *get_args(GeneName)})
"""Temperature is applied where episodes are drawn and comes back with their rows; `phase` is a place in `training.schedule`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A job's hyperparameters as an update applies them; what the job leaves out is the config's."""

    phase: int
    genes: dict[str, float]
    "Those of the objective."
    learning_rate: float
    "With the factor of the phase."
    weight_decay: float


def settings_of(job: TrainJob, config: TrainingSection) -> Settings:
    """The settings of one update."""
    given = job.hyperparameters
    phase = int(given.get("phase", len(config.schedule)))
    return Settings(
        phase=phase,
        genes={name: value for name, value in given.items() if name in get_args(GeneName)},
        learning_rate=given.get("learning_rate", config.initial_learning_rate) * config.rate_scale(phase),
        weight_decay=given.get("weight_decay", config.weight_decay),
    )


def details_of(job: TrainJob, objective: str, num_rows: int) -> dict[str, object]:
    """What a manifest tells of the job that made a version."""
    return {
        "job": job.id,
        "objective": objective,
        "hyperparameters": dict(job.hyperparameters),
        "num_rows": num_rows,
    }


def check_job(job: TrainJob, own: pa.Table, borrowed: pa.Table) -> None:
    """Accept a job whose episodes are those it names, all drawn for training, and whose hyperparameters are known.

    Raises:
        ValueError: names the first thing that is wrong.
    """
    for which, table, items in (("own", own, job.items), ("borrowed", borrowed, job.borrowed)):
        got, expected = set(table.column("item").to_pylist()), set(items)
        if got != expected:
            raise ValueError(
                f"the {which} episodes are of other items than the job's: {len(expected - got)} missing "
                f"{sorted(expected - got)[:5]}, {len(got - expected)} not asked for {sorted(got - expected)[:5]}"
            )
        purposes = set(table.column("purpose").to_pylist()) - {Purpose.TRAIN.value}
        if purposes:
            raise ValueError(
                f"the {which} episodes were drawn for {min(purposes)}; only those drawn for training may be trained on"
            )
    if unknown := set(job.hyperparameters) - _HYPERPARAMETERS:
        raise ValueError(
            f"this trainer applies no hyperparameter {min(unknown)!r}; expected {', '.join(sorted(_HYPERPARAMETERS))}"
        )
