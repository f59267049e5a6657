"""Rows of a local file as one family of tasks: JSON lines, or one JSON array of objects.

The whole file is read when the source is built, so that every fault in it is found then and named by file and line; rows
that repeat a question with its answer count once. Rows are cut into levels of equal size by the length of their reference
(steps and answer): short solutions are the easy ones. Invariant: the source is a function of the file's content and the
section alone, and every offered format reads back every row's answer; a format that cannot is not offered.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from string import Formatter
from typing import Any

from coharness.config.schema import JsonlTasks
from coharness.records.errors import TaskError
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.formats import FORMATS, Solution, render_references

_CALCULATOR = re.compile(r"<<[^<>]*>>")
"""GSM8K marks calculator calls as <<3*4=12>> inside its solutions (Cobbe et al., 2021)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    question: str
    answer: str
    steps: str
    choices: tuple[str, ...]


class JsonlSource:
    """One family read from a file."""

    def __init__(self, section: JsonlTasks, root: Path) -> None:
        """Read the file of `section`; a relative path is taken from `root`.

        Raises:
            TaskError: the file is missing, empty or malformed; a row lacks a field; the answer pattern is wrong or does not
                match; or there are fewer rows than levels.
        """
        self._family = section.family
        self._params = {key: value for key, value in section.verifier_params.items() if key != "choices"}
        self._kind = VerifierKind(section.verifier)
        rows = _read_rows(section, root)
        if len(rows) < section.levels:
            raise TaskError(f"{section.path}: {len(rows)} distinct rows cannot be cut into {section.levels} levels")
        has_steps = all(row.steps for row in rows)
        self._formats = tuple(
            name
            for name in ("answer_line", "boxed", "tagged", *(("worked",) if has_steps else ()))
            if all(FORMATS[name].extract(FORMATS[name].render(_solution(row))) == row.answer for row in rows)
        )
        if not self._formats:
            raise TaskError(
                f"{section.path}: no answer format can carry all answers; do they hold </answer> or Answer:?"
            )
        rows.sort(key=lambda row: (len(row.steps) + len(row.answer), row.question, row.answer))
        cuts = [len(rows) * level // section.levels for level in range(section.levels + 1)]
        self._levels = tuple(tuple(rows[low:high]) for low, high in pairwise(cuts))

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The one family."""
        solutions = [_solution(row) for rows in self._levels for row in rows]
        longest = max(len(FORMATS[name].render(solution)) for solution in solutions for name in self._formats)
        return (
            FamilySpec(
                name=self._family,
                num_levels=len(self._levels),
                formats=self._formats,
                num_tasks=tuple(map(len, self._levels)),
                max_answer_chars=longest,
            ),
        )

    def make(self, family: str, level: int, seed: int) -> Task:
        """The row that `seed` names, modulo the number of rows of the level.

        Raises:
            TaskError: another family or level.
        """
        if family != self._family or not 1 <= level <= len(self._levels):
            raise TaskError(
                f"this source has {self._family} with levels 1 to {len(self._levels)}, got {family}, level {level}"
            )
        rows = self._levels[level - 1]
        row = rows[seed % len(rows)]
        params = {**self._params, "choices": list(row.choices)} if row.choices else self._params
        return Task(
            id=task_id(family, level, row.question, row.answer),
            family=family,
            level=level,
            seed=seed,
            question=row.question,
            answer=row.answer,
            verifier=VerifierSpec(kind=self._kind, params=params),
            references=render_references(self._formats, _solution(row)),
            metadata={"row": row.where},
        )


def _solution(row: _Row) -> Solution:
    return Solution(answer=row.answer, steps=row.steps)


# Reading ------------------------------------------------------------------------------------------------------------


def _read_rows(section: JsonlTasks, root: Path) -> list[_Row]:
    path = root / section.path
    pattern = _compile(section)
    rows: dict[tuple[str, str], _Row] = {}
    for where, fields in _read_objects(path):
        text = _as_text(_field(fields, section.answer, where))
        answer, steps = text.strip(), ""
        if pattern is not None:
            match = pattern.search(text)
            if match is None or match[1] is None:
                raise TaskError(f"{where}: answer_pattern {section.answer_pattern!r} does not match {text[-80:]!r}")
            answer, steps = match[1].strip(), _CALCULATOR.sub("", text[: match.start()]).strip()
        if not answer:
            raise TaskError(f"{where}: the field {section.answer!r} holds no answer")
        question = _question(fields, section.question, where)
        row = _Row(
            where=where.removeprefix(f"{path.parent}/"),
            question=question,
            answer=answer,
            steps=steps,
            choices=_choices(section, fields, where),
        )
        rows.setdefault((question, answer), row)
    if not rows:
        raise TaskError(f"{path} holds no rows")
    return list(rows.values())


def _read_objects(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """(file:line, object) of each row."""
    if not path.is_file():
        near = get_close_matches(path.name, [p.name for p in path.parent.glob("*")]) if path.parent.is_dir() else []
        hint = f"; beside it lies {', '.join(near)}" if near else ""
        raise TaskError(f"jsonl task source: no file {path}{hint}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8 text: {error}") from error
    return parse_rows(text, path)


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


def _compile(section: JsonlTasks) -> re.Pattern[str] | None:
    if section.answer_pattern is None:
        return None
    try:
        pattern = re.compile(section.answer_pattern)
    except re.error as error:
        raise TaskError(f"answer_pattern {section.answer_pattern!r} is no regular expression: {error}") from error
    if pattern.groups < 1:
        raise TaskError(f"answer_pattern {section.answer_pattern!r} needs a group around the answer, as in '#### (.+)'")
    return pattern


def _field(fields: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in fields:
        raise TaskError(f"{where}: no field {name!r}; the row has {', '.join(map(repr, fields)) or 'none'}")
    return fields[name]


def _question(fields: Mapping[str, Any], template: str, where: str) -> str:
    """The field named `template`, or, where it holds braces, the template filled with the row's fields."""
    if "{" not in template:
        return _as_text(_field(fields, template, where)).strip()
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise TaskError(f"question template {template!r} is malformed: {error}") from error
    filled = [text + ("" if name is None else _as_text(_field(fields, name, where))) for text, name, _, _ in parts]
    return "".join(filled).strip()


def _choices(section: JsonlTasks, fields: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """What may be chosen: a list in `verifier_params`, or the row's field that it names (`choices` where left out)."""
    if section.verifier != "choice":
        return ()
    given = section.verifier_params.get("choices", "choices")
    values = _field(fields, given, where) if isinstance(given, str) else given
    if not isinstance(values, Sequence) or isinstance(values, str) or not 2 <= len(values) <= 26:
        raise TaskError(f"{where}: choices are a list of 2 to 26 values, got {values!r:.80}")
    return tuple(_as_text(value) for value in values)


def _as_text(value: Any) -> str:
    """A JSON value as a reader would write it: 51.0 as 51, a list as lettered lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return "\n".join(f"{chr(ord('A') + index)}) {_as_text(entry)}" for index, entry in enumerate(value))
    return json.dumps(value, ensure_ascii=False)
