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
from pathlib import Path
from string import Formatter
from typing import Any

from coharness.config.schema import JsonlTasks
from coharness.records.errors import TaskError
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec
from coharness.tasks.formats import Solution
from coharness.tasks.rows import RowFamily, parse_rows

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
        self._params = {key: value for key, value in section.verifier_params.items() if key != "choices"}
        self._kind = VerifierKind(section.verifier)
        rows = _read_rows(section, root)
        rows.sort(key=lambda row: (len(row.steps) + len(row.answer), row.question, row.answer))
        worked = ("worked",) if all(row.steps for row in rows) else ()
        self._rows = RowFamily(
            section.family,
            rows,
            levels=section.levels,
            formats=("answer_line", "boxed", "tagged", *worked),
            solution=_solution,
            file=section.path,
            answers="answers; do they hold </answer> or Answer:?",
        )

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The one family."""
        return (self._rows.spec,)

    def make(self, family: str, level: int, seed: int) -> Task:
        """The row that `seed` names, modulo the number of rows of the level.

        Raises:
            TaskError: another family or level.
        """
        row = self._rows.row(family, level, seed)
        params = {**self._params, "choices": list(row.choices)} if row.choices else self._params
        return self._rows.task(level, seed, row, row.question, VerifierSpec(kind=self._kind, params=params), row.where)


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
