"""Rows of a file as one family of tasks: reading them, cutting them into levels, and the formats that carry their answers.

Invariants: levels are of equal size but for rounding, easy rows first; every offered format reads back every row's answer. What a
row holds is its source's business (`jsonl`, `code`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

from coharness.records.errors import TaskError
from coharness.records.task import FamilySpec, Task, VerifierSpec, task_id
from coharness.tasks.formats import FORMATS, Solution, render_references

Row = TypeVar("Row")


class RowFamily(Generic[Row]):
    """One family whose tasks are rows, each drawn as often as one likes."""

    def __init__(
        self,
        family: str,
        rows: Sequence[Row],
        *,
        levels: int,
        formats: Sequence[str],
        solution: Callable[[Row], Solution],
        file: str,
        answers: str,
    ) -> None:
        """Cut rows into levels, and find out which formats can carry all of them.

        Args:
            family: Its name.
            rows: Distinct rows, the easy ones first.
            levels: How many levels there are to be.
            formats: Names of the formats that may be offered.
            solution: What a row's answer is.
            file: What messages call the file.
            answers: What messages call the answers, and why a format may fail at them.

        Raises:
            TaskError: there are fewer rows than levels, or no format can carry all answers.
        """
        if len(rows) < levels:
            raise TaskError(f"{file}: {len(rows)} distinct rows cannot be cut into {levels} levels")
        solutions = [solution(row) for row in rows]
        self._formats = tuple(
            name
            for name in formats
            if all(
                FORMATS[name].is_faithful(FORMATS[name].extract(FORMATS[name].render(s)), s.answer) for s in solutions
            )
        )
        if not self._formats:
            raise TaskError(f"{file}: no answer format can carry all {answers}")
        cuts = [len(rows) * level // levels for level in range(levels + 1)]
        self._family, self._solution = family, solution
        self._levels = tuple(tuple(rows[low:high]) for low, high in pairwise(cuts))
        self._longest = max(len(FORMATS[name].render(s)) for s in solutions for name in self._formats)

    @property
    def spec(self) -> FamilySpec:
        """The family as a source declares it."""
        return FamilySpec(
            name=self._family,
            num_levels=len(self._levels),
            formats=self._formats,
            num_tasks=tuple(map(len, self._levels)),
            max_answer_chars=self._longest,
        )

    def row(self, family: str, level: int, seed: int) -> Row:
        """The row that `seed` names, modulo the number of rows of the level.

        Raises:
            TaskError: another family or level.
        """
        if family != self._family or not 1 <= level <= len(self._levels):
            raise TaskError(
                f"this source has {self._family} with levels 1 to {len(self._levels)}, got {family}, level {level}"
            )
        rows = self._levels[level - 1]
        return rows[seed % len(rows)]

    def task(self, level: int, seed: int, row: Row, question: str, verifier: VerifierSpec, where: str) -> Task:
        """The task that a row is.

        Args:
            level: Its level.
            seed: What drew it.
            row: As `row` gave it.
            question: What is asked.
            verifier: How answers are checked.
            where: The row's place in its file.
        """
        solution = self._solution(row)
        return Task(
            id=task_id(self._family, level, question, solution.answer),
            family=self._family,
            level=level,
            seed=seed,
            question=question,
            answer=solution.answer,
            verifier=verifier,
            references=render_references(self._formats, solution),
            metadata={"row": where},
        )


def parse_rows(text: str, path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """(file:line, object) of each row of a file's text: JSON lines, or one JSON array.

    Raises:
        TaskError: it is no JSON, or a row is no object.
    """
    parsed: list[tuple[str, Any]] = []
    if text.lstrip().startswith("["):
        array = _parse(text, f"{path}")
        parsed = [(f"{path}: element {index}", value) for index, value in enumerate(array)]
    else:
        # Not splitlines: it also breaks at U+2028 and its like, which JSON strings may hold as they are.
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                parsed.append((f"{path}:{number}", _parse(line, f"{path}:{number}")))
    for where, value in parsed:
        if not isinstance(value, dict):
            raise TaskError(f"{where}: a row is a JSON object, got {type(value).__name__}")
    return parsed


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TaskError(f"{where}: not JSON: {error}") from error
