"""The journal of a search: frames of events, appended and durable before anything acts on them.

One text file: a header line with the schema, then a frame a line, `<crc32 hex> [[kind, fields], ...]`. Only the last line
can be torn, by a death in mid-write; it is cut when the file is opened for writing. Damage anywhere else is an error that
names the line.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coharness.records.codec import decode, encode
from coharness.records.errors import JournalError
from coharness.tune.events import Event

SCHEMA = 1


class SearchJournal:
    """The one writer of a search's journal."""

    def __init__(self, path: Path) -> None:
        """Open for appending; a torn tail is cut first.

        Raises:
            JournalError: the file is damaged, or of a newer schema.
        """
        if path.exists():
            whole = sum(len(line) for line in _lines(path))
            with path.open("r+b") as file:
                file.truncate(whole)
        self._file = path.open("ab")
        if self._file.tell() == 0:
            self._file.write(json.dumps({"search_journal": SCHEMA}).encode() + b"\n")
            self._flush()
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def append(self, events: Sequence[Event]) -> None:
        """Write one frame and wait until it is durable."""
        body = json.dumps(
            [encode(Event, event) for event in events], separators=(",", ":"), ensure_ascii=False
        ).encode()
        self._file.write(b"%08x %s\n" % (zlib.crc32(body), body))
        self._flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def read_journal(path: Path) -> Iterator[tuple[Event, ...]]:
    """All frames in order; a torn tail ends them quietly.

    Raises:
        JournalError: damage that is no torn tail, or a newer schema.
    """
    lines = _lines(path)
    next(lines, None)
    for line in lines:
        yield tuple(decode(Event, event) for event in json.loads(line[9:]))


def _lines(path: Path) -> Iterator[bytes]:
    """All whole lines, the header first."""
    data = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(data, start=1):
        is_last = number == len(data)
        if number == 1:
            _check_header(path, line, is_last)
            if not line.endswith(b"\n"):
                return
        elif not _is_whole(line):
            if is_last:
                return
            raise JournalError(
                f"{path}, line {number} is damaged: its checksum does not match. The events behind it cannot be trusted; "
                "restore the file from a copy"
            )
        yield line


def _is_whole(line: bytes) -> bool:
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    try:
        return line.endswith(b"\n") and int(crc, 16) == zlib.crc32(body)
    except ValueError:
        return False


def _check_header(path: Path, line: bytes, is_last: bool) -> None:
    if is_last and not line.endswith(b"\n"):
        return
    try:
        schema: Any = json.loads(line)["search_journal"]
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path}, line 1 is no header of a search's journal") from error
    if schema != SCHEMA:
        raise JournalError(
            f"{path} has schema {schema}, this code reads {SCHEMA}; read it with the coharness that wrote it"
        )
