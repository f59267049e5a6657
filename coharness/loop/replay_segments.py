"""Segments of the replay store: Arrow IPC streams that survive the death of whoever writes them.

`seg-000007.arrows` is sealed, `seg-000008.arrows.open` is being written. Every batch carries the CRC of its message as
custom metadata and is synced before `write` returns, so a tail that is torn or damaged was never acknowledged and can be
cut. Driven by `coharness.loop.replay_store` alone.
"""

import io
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from coharness.records.episode import EPISODE_SCHEMA
from coharness.records.errors import Boundary, BoundaryError

_CRC = b"crc32"
_SEGMENT = re.compile(r"seg-(\d{6,})\.arrows(\.open)?")
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class OpenSegment:
    """The segment being written: every batch goes to the file in one write and is synced."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.batches: list[pa.RecordBatch] = []
        self.num_bytes = 0
        self._sealed = sealed_path(folder, number)
        self._path = self._sealed.with_name(self._sealed.name + ".open")
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, EPISODE_SCHEMA)
        sync_folder(folder)

    def write(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Write a batch; what comes back lives in memory of its own, not in that of the caller's table.

        Raises:
            BoundaryError: REPLAY, where the disk refused it; nothing of it stays, and the segment can be written on.
        """
        message = batch.serialize()
        start = self.num_bytes
        self._writer.write_batch(batch, custom_metadata={_CRC: str(zlib.crc32(message))})
        try:
            self._flush()
        except OSError as error:
            self._rewind(start)
            raise BoundaryError(
                Boundary.REPLAY, f"cannot write {self._path}: {error.strerror}; free space on this disk"
            ) from error
        kept = pa.ipc.read_record_batch(message, EPISODE_SCHEMA)
        self.batches.append(kept)
        return kept

    def seal(self) -> None:
        """End the stream and give the file its final name."""
        self._writer.close()
        self._flush()
        os.close(self._file)
        self._path.rename(self._sealed)
        sync_folder(self._sealed.parent)

    def _rewind(self, start: int) -> None:
        """Forget what was written behind `start`."""
        with suppress(OSError):  # what stays is cut by whoever opens the store next
            os.ftruncate(self._file, start)
        self.num_bytes = start
        self._sink.seek(0)
        self._sink.truncate()
        if start == 0:
            # The schema, which begins the stream, went with the first batch.
            self._writer = pa.ipc.new_stream(self._sink, EPISODE_SCHEMA)

    def _flush(self) -> None:
        data = memoryview(self._sink.getvalue())
        while data:
            written = os.write(self._file, data)
            self.num_bytes += written
            data = data[written:]
        os.fdatasync(self._file)
        self._sink.seek(0)
        self._sink.truncate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What can be trusted of a segment."""

    batches: list[pa.RecordBatch]
    num_bytes: int
    "Length of the part of the file that can be trusted, end-of-stream marker excluded."


def scan(path: Path, *, verify: bool) -> Scan:
    """The batches of a segment up to the first one that is torn or, where `verify`, damaged; zero-copy over a map.

    Raises:
        BoundaryError: REPLAY, where the segment has another schema.
    """
    batches: list[pa.RecordBatch] = []
    if path.stat().st_size == 0:
        return Scan(batches=batches, num_bytes=0)
    source = pa.memory_map(str(path))
    try:
        reader = pa.ipc.open_stream(source)
    except (pa.ArrowException, OSError):
        return Scan(batches=batches, num_bytes=0)
    if not reader.schema.equals(EPISODE_SCHEMA, check_metadata=True):
        raise BoundaryError(
            Boundary.REPLAY,
            f"{path} holds {_version(reader.schema)}, this code reads {_version(EPISODE_SCHEMA)}; "
            f"use the coharness that wrote the run",
        )
    end = source.tell()
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            if verify:
                # A batch whose offsets are damaged would abort the process when it is serialised below.
                batch.validate(full=True)
        except (StopIteration, pa.ArrowException, OSError):
            break
        if verify and (metadata is None or metadata.get(_CRC) != str(zlib.crc32(batch.serialize())).encode()):
            break
        batches.append(batch)
        end = source.tell()
    return Scan(batches=batches, num_bytes=end)


def _version(schema: pa.Schema) -> str:
    version: bytes = (schema.metadata or {}).get(b"coharness.schema", b"a schema of unknown version")
    return version.decode(errors="replace")


def recover(path: Path) -> None:
    """Seal the segment of a writer that died: cut at the first bad batch, or removed where it holds none."""
    found = scan(path, verify=True)
    if not found.batches:
        path.unlink()
        return
    with path.open("r+b") as file:
        file.truncate(found.num_bytes)
        file.seek(found.num_bytes)
        file.write(_END_OF_STREAM)
        file.flush()
        os.fsync(file.fileno())
    path.rename(path.with_suffix(""))
    sync_folder(path.parent)


def sealed_path(folder: Path, number: int) -> Path:
    """Where a segment lies once it is sealed."""
    return folder / f"seg-{number:06d}.arrows"


def segments(folder: Path) -> Iterator[tuple[int, Path]]:
    """Segments in the order they were begun."""
    found = [(int(match[1]), path) for path in folder.glob("seg-*") if (match := _SEGMENT.fullmatch(path.name))]
    yield from sorted(found)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
