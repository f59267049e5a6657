"""From sources, instructions and candidates to a table of features, and the files they come from.

A source whose instruction the grammar does not know gets no row at all: it is reported, and every judgment of it abstains.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from coharness.reward.images.pixels import Image
from coharness.reward.images.spec import parse
from coharness.reward.images.toolbox import FEATURES, TOOLS, measure
from coharness.reward.images.view import Scene, View
from coharness.reward.library.ideas import FeatureNote
from coharness.reward.library.table import FeatureTable

_AXES = {
    "change": "instruction", "colour": "instruction", "presence": "instruction", "blend": "instruction", "text": "instruction",
    "preservation": "preservation", "shift": "preservation", "others": "preservation",
}  # fmt: skip
NOTES: Mapping[str, FeatureNote] = {
    feature: FeatureNote(about=tool.about, axis=_AXES.get(tool.name, "quality"))
    for tool in TOOLS.values()
    for feature in tool.features
}
"""What each feature is about, for the texts of skills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One source with an instruction and candidates."""

    name: str
    source: Image
    instruction: str
    candidates: tuple[Image, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A table, where each candidate stands in it, and what was left out."""

    table: FeatureTable
    rows: Mapping[tuple[str, int], int]
    "(task, index of the candidate) -> row."
    unread: tuple[str, ...]
    "Tasks whose instruction is not understood."


def measure_tasks(tasks: Iterable[Task]) -> Measured:
    """Look at all candidates of all tasks.

    Raises:
        ValueError: a candidate has another size than its source, or a name stands twice.
    """
    values: list[tuple[float, ...]] = []
    group: list[int] = []
    names: list[str] = []
    contexts: list[str] = []
    rows: dict[tuple[str, int], int] = {}
    unread: list[str] = []
    for task in tasks:
        spec = parse(task.instruction)
        if spec is None:
            unread.append(task.name)
            continue
        scene = Scene.of(task.source, spec)
        for index, candidate in enumerate(task.candidates):
            rows[task.name, index] = len(values)
            values.append(measure(View.of(scene, candidate)))
            group.append(len(names))
        names.append(task.name)
        contexts.append(spec.operation.value)
    table = FeatureTable(
        features=FEATURES, values=np.array(values, dtype=np.float64).reshape(len(values), len(FEATURES)),
        group=np.array(group, dtype=np.int64), names=tuple(names), contexts=tuple(contexts),
    )  # fmt: skip
    return Measured(table=table, rows=rows, unread=tuple(unread))
