"""Files of rows that judges are given, fitted to or trained on: one JSON object a line, or one array of them.

Every row comes with the words for where it stands, so that whoever reads it can name the place. Invariant: a row is an object;
what its fields mean is the caller's.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError

Row = tuple[str, dict[str, Any]]
"""Where a row stands, and the row."""


def read_rows(path: Path) -> list[Row]:
    """All rows of a file.

    Raises:
        ConfigError: the file cannot be read, or a row is no JSON object; names the place.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return parse_rows(text, str(path))


def parse_rows(text: str, source: str) -> list[Row]:
    """All rows of a text; `source` is what messages call it.

    Raises:
        ConfigError: a row is no JSON object; names the place.
    """
    rows = []
    for where, value in _values(text, source):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} is a {type(value).__name__}, expected an object")
        rows.append((where, value))
    return rows


def _values(text: str, source: str) -> Iterator[tuple[str, Any]]:
    if text.lstrip().startswith("["):
        yield from ((f"{source}, entry {n}", value) for n, value in enumerate(_parse(text, source), start=1))
        return
    # Not splitlines: it also breaks at U+2028 and its like, which JSON strings may hold as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{source}, line {number}"
            yield where, _parse(line, where)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON: {error}; expected an object a line, or one array of objects") from error
