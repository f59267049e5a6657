"""A user's own tasks: a function in a Python file, named in the config as `path/to/file.py:function`.

The function takes nothing and returns a task source; `simple_source` builds one from a function that makes a question and
its answer, so that a new family needs about twenty lines. The file is the user's code: it runs with the rights of the run.
"""

import importlib.util
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from coharness.records.errors import Boundary, BoundaryError, TaskError, boundary
from coharness.records.ids import content_hash, derive_seed
from coharness.records.protocols import TaskSource
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.formats import FORMATS, Solution, render_references
from coharness.tasks.sources import ScoreFunction

MakeFunction = Callable[[int, random.Random], tuple[str, str]]
"""(level, generator) -> (question, answer); all randomness comes from the generator."""


class SimpleSource:
    """One family made by a function; see `simple_source`."""

    def __init__(
        self, name: str, make: MakeFunction, levels: int, score: ScoreFunction | None, formats: tuple[str, ...]
    ) -> None:
        """Checked by `simple_source`, which is how one is made."""
        self._make = make
        self._verifier = VerifierSpec(
            kind=VerifierKind.EXACT if score is None else VerifierKind.PYTHON,
            params={} if score is None else {"family": name},
        )
        self._spec = FamilySpec(name=name, num_levels=levels, formats=formats, num_tasks=(None,) * levels)
        self.scorers: Mapping[str, ScoreFunction] = {} if score is None else {name: score}
        "Family -> the user's score function."

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The one family."""
        return (self._spec,)

    def make(self, family: str, level: int, seed: int) -> Task:
        """The task of this recipe.

        Raises:
            TaskError: another family or level, or the user's function did not return two strings.
        """
        spec = self._spec
        if family != spec.name or not 1 <= level <= spec.num_levels:
            raise TaskError(
                f"this source has {spec.name} with levels 1 to {spec.num_levels}, got {family}, level {level}"
            )
        made = self._make(level, random.Random(derive_seed("python", family, level, seed)))
        if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(part, str) for part in made)):
            raise TaskError(
                f"{family}: make(level, rng) must return (question, answer), two strings; got {made!r:.200}"
            )
        question, answer = made[0], made[1].strip()
        if not answer:
            raise TaskError(f"{family}: make(level, rng) returned an empty answer to {question!r:.80}")
        return Task(
            id=task_id(family, level, question, answer),
            family=family,
            level=level,
            seed=seed,
            question=question,
            answer=answer,
            verifier=self._verifier,
            references=render_references(spec.formats, Solution(answer=answer)),
        )


def simple_source(
    name: str,
    make: MakeFunction,
    levels: int = 1,
    score: ScoreFunction | None = None,
    formats: tuple[str, ...] = ("answer_line", "boxed", "tagged"),
) -> TaskSource:
    """A source of one family from a function that makes one problem.

    Args:
        name: the family.
        make: (level, rng) -> (question, answer); must take all randomness from `rng` (`random.Random`).
        levels: how many levels there are, 1 the easiest.
        score: (question, expected, answer) -> score in [0, 1], 1 correct; exact comparison where left out.
        formats: answer formats on offer, the plain one first; those of a raw base are `("plain", "mirror", "doubled")`.

    Raises:
        TaskError: no levels, no formats, or a format that does not exist or needs more than an answer.
    """
    possible = [f for f in FORMATS if f not in ("trace", "backward", "echo", "filler", "worked", "body")]
    wrong = [f for f in formats if f not in possible]
    if wrong or not formats:
        raise TaskError(f"{name}: formats are some of {', '.join(possible)}; got {list(formats)}")
    if levels < 1:
        raise TaskError(f"{name}: levels must be at least 1, got {levels}")
    return SimpleSource(name, make, levels, score, formats)


def load_source(path: str, root: Path) -> TaskSource:
    """The source that the function `path` = `file.py:function` returns; a relative file is taken from `root`.

    Raises:
        TaskError: the path has another form, the file or the function is missing, the file does not import, or the function
            returns something that is not a task source.
    """
    file_name, colon, function_name = path.rpartition(":")
    if not colon or not file_name.endswith(".py") or not function_name.isidentifier():
        raise TaskError(f"a python task source is named path/to/file.py:function, got {path!r}")
    file = (root / file_name).resolve()
    if not file.is_file():
        raise TaskError(f"python task source {path!r}: no file {file}")
    # The name carries the path's hash, so that two files of one name do not replace each other; registered, for pickling.
    module_name = f"coharness_user_{file.stem}_{content_hash(str(file), 8)}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise TaskError(f"python task source {path!r}: {file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with boundary(Boundary.TASK):
            spec.loader.exec_module(module)
    except BoundaryError as failure:
        del sys.modules[module_name]
        raise TaskError(
            f"python task source {path!r}: {file} fails to import: {failure.message}"
        ) from failure.__cause__
    function = getattr(module, function_name, None)
    if not callable(function):
        defined = sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        raise TaskError(f"python task source {path!r}: {file.name} has no function {function_name!r}; it has {defined}")
    source = function()
    if not isinstance(source, TaskSource):
        raise TaskError(
            f"python task source {path!r}: {function_name}() must return a task source (`families` and `make`; see "
            f"coharness.tasks.simple_source), got {type(source).__name__}"
        )
    return source
