"""A member's schedule: the path of its hyperparameters through clones and merges, as one clean run that can be made again.

    p0-1 ── p0-2 ──┐                                    p0-1 ── p0-2 ── p4-1 ── p4-2
                   └── p4-1 (clone of p0) ── p4-2   =                    a single run with the settings of each segment
    p1-1 ── p1-2        (dropped: not an ancestor)

A chain of clones is played by one trainable that never loads a checkpoint; where weights were merged, both paths are
played. `play` compares the numbers of every segment's last step with the recorded ones, so a trainable whose state is not
all in its checkpoints is found out.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coharness.records.codec import decode, encode
from coharness.records.errors import ConfigError
from coharness.records.ids import derive_seed
from coharness.spaces.domain import Value
from coharness.tune.config import TuneConfig
from coharness.tune.events import SegmentId
from coharness.tune.files import write_json
from coharness.tune.state import SearchState
from coharness.tune.trainable import Mergeable, Reseedable, Trainable, build, put_in_force, resolve

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One segment of a schedule."""

    id: SegmentId
    parents: tuple[tuple[SegmentId, float], ...]
    hyperparameters: Mapping[str, Value]
    seed: int
    reseed: bool
    steps: int
    metrics: Mapping[str, float]
    "Of its last step, as the search recorded them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A path to one checkpoint, parents before children."""

    trainable: str
    constants: Mapping[str, Any]
    stretches: tuple[Stretch, ...]

    @property
    def num_steps(self) -> int:
        """Steps of the clean run, over all paths."""
        return sum(stretch.steps for stretch in self.stretches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a clean run gave."""

    metrics: Mapping[str, float]
    "Of its last step."
    num_steps: int
    difference: str
    "The first number that is not the recorded one; empty where all are."


def schedule_of(state: SearchState, config: TuneConfig, segment: SegmentId) -> Schedule:
    """The schedule of the member that stands, or stood, at a checkpoint.

    Raises:
        ConfigError: the search made no such checkpoint.
    """
    if segment not in state.segments:
        raise ConfigError(f"the search made no checkpoint {segment!r}; a member's last one stands in result.json")
    wanted, stack = set[SegmentId](), [segment]
    while stack:
        found = stack.pop()
        if found not in wanted:
            wanted.add(found)
            stack += [parent for parent, _ in state.segments[found].parents]
    return Schedule(
        trainable=config.trainable,
        constants=config.constants,
        stretches=tuple(
            Stretch(
                id=name,
                parents=made.parents,
                hyperparameters=made.hyperparameters,
                seed=made.seed,
                reseed=made.reseed,
                steps=made.steps,
                metrics=made.metrics,
            )
            for name, made in state.segments.items()  # in the order in which they ended, so parents come first
            if name in wanted
        ),
    )


def write_schedule(path: Path, schedule: Schedule) -> None:
    """Write a schedule as JSON."""
    write_json(path, {"schedule": SCHEMA, "body": encode(Schedule, schedule)})


def read_schedule(path: Path) -> Schedule:
    """Read a schedule.

    Raises:
        ConfigError: the file is no schedule.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schedule"] != SCHEMA:
            raise ConfigError(
                f"{path} has schema {data['schedule']}, this code reads {SCHEMA}; export the schedule again"
            )
        return decode(Schedule, data["body"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a schedule: {error}") from error


def play(schedule: Schedule, *, seed: int | None = None, tolerance: float = 0.0) -> Played:
    """Make the run again, cleanly.

    Args:
        schedule: which.
        seed: other random numbers than the search's, for a fair comparison with other schedules; then nothing is compared.
        tolerance: how far a number may be from the recorded one, relative to it.

    Raises:
        ConfigError: the trainable cannot be built, changed or merged.
    """
    kind = resolve(schedule.trainable)
    uses = Counter(parent for stretch in schedule.stretches for parent, _ in stretch.parents)
    merged_from = {p for stretch in schedule.stretches if len(stretch.parents) > 1 for p, _ in stretch.parents}
    living: dict[SegmentId, Trainable] = {}
    difference = ""
    metrics: Mapping[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for stretch in schedule.stretches:
            used = stretch if seed is None else _reseeded(stretch, seed)
            trainable = _prepared(kind, schedule.constants, used, living, Path(scratch))
            for _ in range(stretch.steps):
                metrics = {name: float(value) for name, value in _named(trainable.step()).items()}
            if seed is None and not difference:
                difference = _compared(stretch, metrics, tolerance)
            if uses[stretch.id] > 1 or stretch.id in merged_from:
                folder = Path(scratch) / stretch.id
                folder.mkdir()
                trainable.save(folder)
            else:
                living[stretch.id] = trainable
    return Played(metrics=metrics, num_steps=schedule.num_steps, difference=difference)


def _prepared(
    kind: Any, constants: Mapping[str, Any], stretch: Stretch, living: dict[SegmentId, Trainable], scratch: Path
) -> Trainable:
    wanted = {**constants, **stretch.hyperparameters}
    alive = living.pop(stretch.parents[0][0], None) if len(stretch.parents) == 1 else None
    if alive is not None and hasattr(alive, "apply"):
        trainable = alive
    elif alive is not None:
        # Without `apply` a new setting needs a new object; its state goes through a folder.
        trainable = build(kind, wanted, stretch.seed)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            alive.save(Path(folder))
            trainable.load(Path(folder))
    else:
        trainable = build(kind, wanted, stretch.seed)
        folders = [scratch / parent for parent, _ in stretch.parents]
        if len(folders) == 1:
            trainable.load(folders[0])
        elif folders and isinstance(trainable, Mergeable):
            trainable.merge(folders, [weight for _, weight in stretch.parents])
        elif folders:
            raise ConfigError(f"{type(trainable).__name__} cannot merge; give it merge(folders, weights)")
    put_in_force(trainable, wanted)
    if stretch.reseed and stretch.parents and isinstance(trainable, Reseedable):
        trainable.reseed(stretch.seed)
    return trainable


def _reseeded(stretch: Stretch, seed: int) -> Stretch:
    return replace(stretch, seed=derive_seed("schedule", seed, stretch.seed))


def _named(metrics: Any) -> Mapping[str, Any]:
    return metrics if isinstance(metrics, Mapping) else {"score": metrics}


def _compared(stretch: Stretch, metrics: Mapping[str, float], tolerance: float) -> str:
    for name, recorded in stretch.metrics.items():
        got = metrics.get(name)
        if got is None or abs(got - recorded) > tolerance * abs(recorded):
            return f"{stretch.id}: {name} was {recorded!r}, the clean run gives {got!r}"
    return ""
