"""The journal: all events of a run, append-only, in frames that are written whole before their effects.

A segment is a text file, `e<epoch>-<number>.jsonl`. Its first line is a header with the schema; every other line is a frame,
`<crc32 hex> <json>`, the JSON being [sequence, wall time, [event, ...]]. Sequence numbers go up by one over all segments.

Invariants: a frame is durable (fsync) before `append` returns. Only the last line of the last segment can be torn, by a death
in mid-write; `recover` cuts it. Damage anywhere else is never skipped: it is an error that names file and line.
"""

import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from coharness.records.codec import decode, encode
from coharness.records.errors import JournalError
from coharness.records.events import Event

JOURNAL_SCHEMA = 3
"""2: a harness may carry a reward rule, a member counts its updates. 3: items name their judge, outcomes hold audits."""
SEGMENT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Events that were made durable together."""

    seq: int
    time: float
    "Wall clock, seconds since 1970."
    events: tuple[Event, ...]


class JournalWriter:
    """The one writer of a run's journal."""

    def __init__(self, journal_dir: Path, epoch: int) -> None:
        """Begin a new segment behind what is there; a torn tail is cut first.

        Raises:
            JournalError: the journal is damaged, or of a newer schema.
        """
        recover(journal_dir)
        self._dir = journal_dir
        self._epoch = epoch
        self._next = last_seq(journal_dir) + 1
        self._number = 0
        self._file: FileIO | None = None
        self._open_segment()

    def append(self, events: Sequence[Event]) -> int:
        """Write one frame and wait until it is durable; returns its sequence number.

        Raises:
            JournalError: the disk refused the frame; nothing of it stays, and the run can be resumed.
        """
        assert self._file is not None, "the journal is closed"
        seq = self._next
        body = json.dumps(
            [seq, round(time.time(), 3), [encode(Event, e) for e in events]],
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        ).encode()
        self._write(b"%08x %s\n" % (zlib.crc32(body), body))
        self._next += 1
        if self._file.tell() > SEGMENT_BYTES:
            self._open_segment()
        return seq

    def close(self) -> None:
        """Close the segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: bytes) -> None:
        """One line, whole and durable, or nothing of it."""
        assert self._file is not None, "the journal is closed"
        start = self._file.tell()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):  # a torn tail is cut by whoever opens the journal next
                os.ftruncate(self._file.fileno(), start)
                self._file.seek(start)
            raise JournalError(
                f"cannot write {self._file.name}: {error.strerror}; the run stops before it does what it could not note. "
                f"Free space on this disk, then `coharness resume {self._dir.parent}`"
            ) from error

    def _open_segment(self) -> None:
        self.close()
        self._number += 1
        path = self._dir / f"e{self._epoch:04d}-{self._number:04d}.jsonl"
        # Unbuffered: a line that could not be written must not be tried again when the file is closed.
        self._file = path.open("xb", buffering=0)
        self._write(json.dumps({"journal_schema": JOURNAL_SCHEMA, "epoch": self._epoch}).encode() + b"\n")
        folder = os.open(self._dir, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def segments(journal_dir: Path) -> list[Path]:
    """The journal's files in order."""
    return sorted(journal_dir.glob("e*-*.jsonl"))


def recover(journal_dir: Path) -> int:
    """Cut a torn tail off the last segment; returns the bytes that were cut.

    Raises:
        JournalError: the last segment's header is of a newer schema.
    """
    files = segments(journal_dir)
    if not files:
        return 0
    path = files[-1]
    data = path.read_bytes()
    if b"\n" not in data:
        # The process died while it began the segment; nothing was in it.
        path.unlink()
        return len(data)
    _check_header(path, data.split(b"\n", 1)[0])
    keep = data.rfind(b"\n") + 1
    start = data.rfind(b"\n", 0, keep - 1) + 1
    if start > 0 and _parse(data[start : keep - 1]) is None:
        keep = start
    if keep < len(data):
        with path.open("r+b") as file:
            file.truncate(keep)
            file.flush()
            os.fsync(file.fileno())
    return len(data) - keep


def last_seq(journal_dir: Path) -> int:
    """Sequence number of the last frame, 0 where there is none."""
    for path in reversed(segments(journal_dir)):
        lines = path.read_bytes().rstrip(b"\n").split(b"\n")
        if len(lines) > 1:
            parsed = _parse(lines[-1])
            if parsed is None:
                raise JournalError(f"{path}: the last line is damaged; expected a frame")
            return int(parsed[0])
    return 0


def read_frames(journal_dir: Path, from_seq: int = 1) -> Iterator[Frame]:
    """All frames from a sequence number on, in order; a torn tail ends them quietly.

    Raises:
        JournalError: a damaged line that is not the tail, a gap in the sequence, or a newer schema.
    """
    files = segments(journal_dir)
    expected = 0
    for path in files:
        with path.open("rb") as file:
            _check_header(path, file.readline().rstrip(b"\n"))
            for number, line in enumerate(file, start=2):
                parsed = _parse(line.rstrip(b"\n")) if line.endswith(b"\n") else None
                if parsed is None:
                    is_tail = path == files[-1] and not file.read(1)
                    if is_tail:
                        return
                    raise JournalError(
                        f"{path}, line {number} is damaged: its checksum does not match. The events behind it cannot be "
                        "trusted; restore the file from a copy"
                    )
                seq = int(parsed[0])
                if expected and seq != expected:
                    raise JournalError(
                        f"{path}, line {number} has sequence {seq}, expected {expected}; a frame is missing"
                    )
                expected = seq + 1
                if seq >= from_seq:
                    yield _frame(path, number, parsed)


def follow(journal_dir: Path, from_seq: int) -> Iterator[Frame]:
    """Frames that are there now, from a sequence number on; call again for what came since."""
    if journal_dir.is_dir() and segments(journal_dir):
        yield from read_frames(journal_dir, from_seq)


def _check_header(path: Path, line: bytes) -> None:
    try:
        schema = int(json.loads(line)["journal_schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path}, line 1 is not a journal's header; the file is damaged or not a journal") from error
    if schema > JOURNAL_SCHEMA:
        raise JournalError(
            f"{path} has journal schema {schema}, newer than {JOURNAL_SCHEMA}; read it with a newer coharness"
        )
    if schema < JOURNAL_SCHEMA:
        raise JournalError(
            f"{path} has journal schema {schema}, older than {JOURNAL_SCHEMA}: its events lack fields that decisions read now; "
            "go on with the coharness that wrote it"
        )


def _parse(line: bytes) -> list[Any] | None:
    crc, _, body = line.partition(b" ")
    try:
        if int(crc, 16) != zlib.crc32(body):
            return None
    except ValueError:
        return None
    parsed: list[Any] = json.loads(body)
    return parsed


def _frame(path: Path, number: int, parsed: list[Any]) -> Frame:
    try:
        seq, wall, events = parsed
        return Frame(seq=seq, time=wall, events=tuple(decode(Event, e) for e in events))
    except (ValueError, TypeError) as error:
        raise JournalError(f"{path}, line {number} cannot be read: {error}") from error
