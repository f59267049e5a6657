"""Functions to write as one family of tasks, from rows in the shape of HumanEval (Chen et al., 2021).

A row has `prompt` (imports, helpers, the signature and docstring of a function), `entry_point` (its name),
`canonical_solution` (its body) and `test` (source that defines `check(candidate)`). The question is the prompt, the answer is
the whole function, or its body in the format that carries no more; the verifier of kind CODE takes any that passes the test.
Nothing of a row is executed here. Rows are cut into levels of equal size by the length of the reference.
"""

import ast
import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.config.sandbox import CodeTasks
from coharness.records.errors import TaskError
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec
from coharness.tasks.formats import CODE_FORMATS, Solution
from coharness.tasks.rows import RowFamily, parse_rows

_FIELDS = ("prompt", "entry_point", "canonical_solution", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    prompt: str
    entry: str
    preamble: str
    reference: str
    body: str
    test: str


class CodeSource:
    """One family of functions to write."""

    def __init__(self, section: CodeTasks, root: Path) -> None:
        """Read the file of `section`; a relative path is taken from `root`.

        Raises:
            TaskError: the file is missing, empty or malformed; a row lacks a field, is no Python, or does not define its
                function; or there are fewer rows than levels.
        """
        if section.path is None:
            raise TaskError("code task source: no file is named; the built-in functions are a source of their own")
        path = root / section.path
        rows = list({row.prompt: row for row in map(_row, *zip(*_read(path), strict=True))}.values())
        rows.sort(key=lambda row: (len(row.reference), row.prompt))
        self._rows = RowFamily(
            section.family,
            rows,
            levels=section.levels,
            formats=CODE_FORMATS,
            solution=_solution,
            file=section.path,
            answers="functions; do they hold </answer>?",
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
        question = f"Complete this Python function.\n\n{row.prompt.strip()}"
        params = {"entry": row.entry, "prompt": row.prompt, "preamble": row.preamble, "test": row.test}
        return self._rows.task(
            level, seed, row, question, VerifierSpec(kind=VerifierKind.CODE, params=params), row.where
        )


def _solution(row: _Row) -> Solution:
    return Solution(answer=row.reference, body=row.body)


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
    reference, body = _without_docstring(function, lines)
    others = [node for node in tree.body if node is not function]
    return _Row(
        where=where.rpartition("/")[2],
        prompt=prompt,
        entry=entry,
        # Cut from the text by line numbers, not written anew from the tree: that would differ between Python versions.
        preamble="\n".join("\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in others),
        reference=reference,
        body=body,
        test=fields["test"],
    )


def _without_docstring(function: ast.FunctionDef, lines: list[str]) -> tuple[str, str]:
    """The function's text and that of its body, which the first ends with."""
    first = function.body[0]
    start, end = function.lineno - 1, function.end_lineno or len(lines)
    stop = first.end_lineno or first.lineno
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if is_docstring and len(function.body) > 1 and function.lineno < first.lineno and stop < function.body[1].lineno:
        whole, body = [*lines[start : first.lineno - 1], *lines[stop:end]], lines[stop:end]
    else:
        begin = function.body[1] if is_docstring and len(function.body) > 1 else first
        # Columns count bytes. A statement that stands behind another one begins in the middle of its line.
        rest = lines[begin.lineno - 1].encode()[begin.col_offset :].decode()
        whole, body = lines[start:end], [rest, *lines[begin.lineno : end]]
    return "\n".join(whole).strip(), "\n".join(body).strip()
