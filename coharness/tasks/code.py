"""Functions to write as one family of tasks, from rows in the shape of HumanEval (Chen et al., 2021).

A row has `prompt` (imports, helpers, the signature and docstring of a function), `entry_point` (its name),
`canonical_solution` (its body) and `test` (source that defines `check(candidate)`). The question is the prompt, the answer is
the whole function; the verifier of kind CODE takes any answer that passes the test. Nothing of a row is executed here. Rows
are cut into levels of equal size by the length of the reference.
"""

import ast
import gzip
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from coharness.config.sandbox import CodeTasks
from coharness.records.errors import TaskError
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.formats import FORMATS, Solution, render_references
from coharness.tasks.jsonl import parse_rows

_FIELDS = ("prompt", "entry_point", "canonical_solution", "test")
_FORMATS = ("answer_line", "tagged")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    prompt: str
    entry: str
    preamble: str
    reference: str
    test: str


class CodeSource:
    """One family of functions to write."""

    def __init__(self, section: CodeTasks, root: Path) -> None:
        """Read the file of `section`; a relative path is taken from `root`.

        Raises:
            TaskError: the file is missing, empty or malformed; a row lacks a field, is no Python, or does not define its
                function; or there are fewer rows than levels.
        """
        self._family = section.family
        path = root / section.path
        rows = list({row.prompt: row for row in map(_row, *zip(*_read(path), strict=True))}.values())
        if len(rows) < section.levels:
            raise TaskError(f"{section.path}: {len(rows)} distinct rows cannot be cut into {section.levels} levels")
        self._formats = tuple(
            name
            for name in _FORMATS
            if all(FORMATS[name].extract(_rendered(name, row)) == row.reference for row in rows)
        )
        if not self._formats:
            raise TaskError(f"{section.path}: no answer format can carry all functions; do they hold </answer>?")
        rows.sort(key=lambda row: (len(row.reference), row.prompt))
        cuts = [len(rows) * level // section.levels for level in range(section.levels + 1)]
        self._levels = tuple(tuple(rows[low:high]) for low, high in pairwise(cuts))

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The one family."""
        longest = max(len(_rendered(name, row)) for rows in self._levels for row in rows for name in self._formats)
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
        question = f"Complete this Python function.\n\n{row.prompt.strip()}"
        return Task(
            id=task_id(family, level, question, row.reference),
            family=family,
            level=level,
            seed=seed,
            question=question,
            answer=row.reference,
            verifier=VerifierSpec(
                kind=VerifierKind.CODE,
                params={"entry": row.entry, "prompt": row.prompt, "preamble": row.preamble, "test": row.test},
            ),
            references=render_references(self._formats, Solution(answer=row.reference)),
            metadata={"row": row.where},
        )


def _rendered(name: str, row: _Row) -> str:
    return FORMATS[name].render(Solution(answer=row.reference))


def _read(path: Path) -> list[tuple[str, Any]]:
    """(file:line, object) of each row."""
    if not path.is_file():
        raise TaskError(f"code task source: no file {path}")
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TaskError(f"{path} is no text of UTF-8{' in gzip' if path.suffix == '.gz' else ''}: {error}") from error
    rows = parse_rows(text, path)
    if not rows:
        raise TaskError(f"{path} holds no rows")
    return rows


def _row(where: str, fields: Any) -> _Row:
    missing = [name for name in _FIELDS if not isinstance(fields.get(name), str)]
    if missing:
        raise TaskError(
            f"{where}: {', '.join(missing)} missing or no text; the row has {', '.join(fields) or 'nothing'}"
        )
    prompt, entry = fields["prompt"], fields["entry_point"]
    source = prompt + fields["canonical_solution"]
    try:
        tree = ast.parse(source)
        ast.parse(fields["test"])
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"{where}: the reference or the test is no Python: {error}") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry]
    if not functions:
        raise TaskError(f"{where}: prompt and canonical_solution define no function {entry!r}")
    function, lines = functions[-1], source.split("\n")
    others = [node for node in tree.body if node is not function]
    return _Row(
        where=where.rpartition("/")[2],
        prompt=prompt,
        entry=entry,
        # Cut from the text by line numbers, not written anew from the tree: that would differ between Python versions.
        preamble="\n".join("\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in others),
        reference=_without_docstring(function, lines),
        test=fields["test"],
    )


def _without_docstring(function: ast.FunctionDef, lines: list[str]) -> str:
    first = function.body[0]
    start, end = function.lineno - 1, function.end_lineno or len(lines)
    stop = first.end_lineno or first.lineno
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    has_own_lines = len(function.body) > 1 and function.lineno < first.lineno and stop < function.body[1].lineno
    if is_docstring and has_own_lines:
        return "\n".join(lines[start : first.lineno - 1] + lines[stop:end]).strip()
    return "\n".join(lines[start:end]).strip()
