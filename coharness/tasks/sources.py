"""All task sources of a run behind one door, by family.

`TaskSources` owns the map from family to source; the core, the workers and the studies ask it alone. Invariants: a family
name belongs to exactly one source; a task rebuilt from its recipe has the id that the recipe names, or it is an error.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol, overload, runtime_checkable

from coharness.config.schema import BuiltinTasks, CodeTasks, JsonlTasks, PythonTasks, ReasoningGymTasks, TaskSection
from coharness.records.errors import BoundaryError, TaskError
from coharness.records.ids import TaskId
from coharness.records.protocols import TaskSource
from coharness.records.task import POOL_SHARES, FamilySpec, Pool, Task, TaskRef

logger = logging.getLogger(__name__)

ScoreFunction = Callable[[str, str, str], float]
"""(question, expected, answer) -> a score in [0, 1]; 1 is correct."""


@runtime_checkable
class ScoringSource(TaskSource, Protocol):
    """A task source that brings score functions of its own, for tasks whose verifier is of kind PYTHON."""

    @property
    def scorers(self) -> Mapping[str, ScoreFunction]:
        """Family -> its score function."""
        ...


class TaskSources:
    """The families of several sources; also satisfies what one source promises of `make`."""

    def __init__(self, sources: Sequence[TaskSource]) -> None:
        """Join `sources`.

        Raises:
            TaskError: two sources offer a family of one name.
        """
        self._source_of: dict[str, TaskSource] = {}
        self.families: dict[str, FamilySpec] = {}
        "Family name -> its spec, in the order of the sources."
        self.scorers: dict[str, ScoreFunction] = {}
        "Family -> the user's own score function, for families that bring one."
        self._pools: dict[tuple[str, int], Mapping[Pool, tuple[int, ...]]] = {}
        for source in sources:
            for spec in source.families:
                if spec.name in self.families:
                    raise TaskError(
                        f"two task sources offer a family named {spec.name!r}; rename one (jsonl: `family`) or list fewer"
                    )
                self._source_of[spec.name] = source
                self.families[spec.name] = spec
            if isinstance(source, ScoringSource):
                self.scorers.update(source.scorers)

    @overload
    def make(self, ref: TaskRef, /) -> Task: ...

    @overload
    def make(self, family: str, level: int, seed: int, /) -> Task: ...

    def make(self, family: TaskRef | str, level: int = 1, seed: int = 0, /) -> Task:
        """The task of a recipe, given as a `TaskRef` or as family, level and seed.

        Raises:
            TaskError: the family or the level does not exist, or the task built here is not the one that the `TaskRef`
                names (the data or the code of the source differ between the two sides).
        """
        if isinstance(family, TaskRef):
            ref = family
            task = self.make(ref.family, ref.level, ref.seed)
            if task.id != ref.id:
                raise TaskError(
                    f"family {ref.family}, level {ref.level}, seed {ref.seed} gives task {task.id} here, but {ref.id} was "
                    "asked for; the source's data or code differ between the machines"
                )
            return task
        self.check_cell(family, level)
        return self._source_of[family].make(family, level, seed)

    def try_make(self, family: str, level: int, seed: int) -> Task | None:
        """The task of a recipe, None where the source fails to make this one (its BoundaryError)."""
        try:
            return self.make(family, level, seed)
        except BoundaryError as error:
            logger.debug("family %s, level %d, seed %d gives no task: %s", family, level, seed, error)
            return None

    def check_cell(self, family: str, level: int) -> FamilySpec:
        """The spec of a family that has `level`.

        Raises:
            TaskError: the family is unknown (with close matches), or has no such level.
        """
        spec = self.families.get(family)
        if spec is None:
            close = get_close_matches(family, self.families)
            hint = f"did you mean {' or '.join(close)}?" if close else f"families here: {', '.join(self.families)}"
            raise TaskError(f"no task source offers a family {family!r}; {hint}")
        if not 1 <= level <= spec.num_levels:
            raise TaskError(f"family {family} has levels 1 to {spec.num_levels}, got level {level}")
        return spec

    def cell_pools(self, family: str, level: int) -> Mapping[Pool, tuple[int, ...]] | None:
        """Pool -> the seeds of all tasks of a finite (family, level), each task once; None where they are not counted.

        The whole cell is built on the first call and remembered.
        """
        count = self.check_cell(family, level).num_tasks[level - 1]
        if count is None:
            return None
        cell = (family, level)
        if cell not in self._pools:
            members: dict[Pool, dict[TaskId, int]] = {pool: {} for pool, _ in POOL_SHARES}
            for seed in range(count):
                task = self.try_make(family, level, seed)
                if task is not None:
                    members[task.pool].setdefault(task.id, seed)
            self._pools[cell] = {pool: tuple(seeds.values()) for pool, seeds in members.items()}
        return self._pools[cell]


def build_sources(sections: Sequence[TaskSection], root: Path) -> TaskSources:
    """The sources that a config names; relative paths in it are taken from `root`.

    Raises:
        TaskError: a source cannot be built (a missing or malformed file, an unknown family), or two share a family name.
    """
    return TaskSources([_build(section, root) for section in sections])


def _build(section: TaskSection, root: Path) -> TaskSource:
    match section:
        case BuiltinTasks():
            from coharness.tasks.builtin import BuiltinSource

            return BuiltinSource(section.families, section.max_level)
        case JsonlTasks():
            from coharness.tasks.jsonl import JsonlSource

            return JsonlSource(section, root)
        case ReasoningGymTasks():
            from coharness.tasks.reasoning_gym import ReasoningGymSource

            return ReasoningGymSource(section)
        case CodeTasks(path=None):
            from coharness.tasks.code_builtin import BuiltinCodeSource

            return BuiltinCodeSource(section)
        case CodeTasks():
            from coharness.tasks.code import CodeSource

            return CodeSource(section, root)
        case PythonTasks():
            from coharness.tasks.python_source import load_source

            return load_source(section.path, root)
