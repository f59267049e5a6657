"""Merging weights from disk to disk, unit by unit, without ever holding a model.

    parents' files ──mapped──▶ one tensor of each ──rule──▶ one tensor ──▶ the output file, at its place

Everything that can be told from headers is told before the first byte is written: names, shapes, dtypes, and that the rule can
do with what there is. Then each tensor is read, merged, written and forgotten; what the parents' pages held is given back to
the system. The output appears under its name whole or not at all.

Invariants: the same tensors as `rule.merge` gives for whole maps (a rule merges each unit on its own); names, shapes and
dtypes are the first parent's. Driven by `folders` and by the benchmark.
"""

import itertools
import json
import math
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor

from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES
from coharness.evolution.merging.table import MergeRule
from coharness.records.errors import WeightsError

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LARGEST_HEADER: Final = 100 * 2**20
_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """What a safetensors header says of one tensor."""

    dtype: str
    "As safetensors spells it: F32, BF16, ..."
    shape: tuple[int, ...]
    start: int
    "Offset of its first byte in the file."
    num_bytes: int

    @property
    def like(self) -> tuple[str, tuple[int, ...]]:
        """What has to agree for two tensors to be merged."""
        return self.dtype, self.shape


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of a safetensors file by name, in sorted order.

    Raises:
        WeightsError: the file is missing, cut off, or no safetensors file; a dtype is unknown.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _LARGEST_HEADER):
                raise ValueError(f"its header claims {length} bytes")
            header = json.loads(file.read(length))
        entries = {}
        for name in sorted(set(header) - {"__metadata__"}):
            begin, end = header[name]["data_offsets"]
            dtype, shape = header[name]["dtype"], tuple(header[name]["shape"])
            if dtype not in _DTYPES:
                raise ValueError(f"tensor {name!r} has dtype {dtype}, which is not supported")
            if not 0 <= begin <= end <= size - 8 - length or end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
                raise ValueError(f"tensor {name!r} does not fit into the file")
            entries[name] = TensorEntry(dtype=dtype, shape=shape, start=8 + length + begin, num_bytes=end - begin)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise WeightsError(
            f"cannot read weights from {path}: {error}; expected a complete safetensors file (was the write interrupted?)"
        ) from error
    return entries


@final
class MappedFile:
    """A safetensors file mapped into memory; tensors are views of it. Made by `open_mapped`."""

    __slots__ = ("_memory", "entries", "path")

    def __init__(self, path: Path, entries: dict[str, TensorEntry], memory: mmap.mmap | None) -> None:
        self.path = path
        self.entries = entries
        self._memory = memory

    def tensor(self, name: str) -> Tensor:
        """A view of one tensor; not to be used once the file is closed."""
        entry = self.entries[name]
        dtype = _DTYPES[entry.dtype]
        if not entry.num_bytes or self._memory is None:
            return torch.empty(entry.shape, dtype=dtype)
        if entry.start % dtype.itemsize:
            # Written by something that does not align; such a tensor is copied.
            raw = bytearray(self._memory[entry.start : entry.start + entry.num_bytes])
            return torch.frombuffer(raw, dtype=dtype).reshape(entry.shape)
        count = entry.num_bytes // dtype.itemsize
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=entry.start).reshape(entry.shape)

    def forget(self, name: str) -> None:
        """Give the pages of one tensor back to the system; they are read again should it be asked for again."""
        entry = self.entries[name]
        if self._memory is not None and entry.num_bytes:
            first = entry.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._memory.madvise(mmap.MADV_DONTNEED, first, entry.start + entry.num_bytes - first)


@contextmanager
def open_mapped(path: Path) -> Iterator[MappedFile]:
    """Map a safetensors file; raises WeightsError as `read_header`."""
    entries = read_header(path)
    with path.open("rb") as file:
        # A private mapping that could be written to, since torch warns of buffers that could not; nothing writes to it.
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    # The mapping ends with the last tensor that views it: closing it under one would be refused.
    yield MappedFile(path, entries, memory)


def check_files(files: Mapping[str, Mapping[str, TensorEntry]]) -> None:
    """Refuse files that no rule can merge, by their headers: other names, dtypes or shapes.

    Args:
        files: Label -> header, the first of which the others are held against.

    Raises:
        ValueError: naming the first tensor that differs, the file, what it has and what was expected.
    """
    (first_label, first), *others = files.items()
    for label, entries in others:
        if differing := sorted(set(entries) ^ set(first)):
            kind = "lacks" if differing[0] in first else "has the extra"
            raise ValueError(
                f"{label} {kind} tensor {differing[0]!r} compared with {first_label} ({len(differing)} names differ); expected "
                f"the same names in all (are they policies of one base and one architecture?)"
            )
        for name, entry in entries.items():
            expected = first[name]
            if entry.like != expected.like:
                raise ValueError(
                    f"tensor {name!r} of {label} is {entry.dtype} {list(entry.shape)}; expected {expected.dtype} "
                    f"{list(expected.shape)} as in {first_label} (a resized vocabulary, another architecture, or a cast?)"
                )


def merge_files(
    rule: MergeRule,
    parents: Sequence[Path],
    weights: Sequence[float],
    out: Path,
    base: Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    statistics: Sequence[Path] = (),
    metadata: Mapping[str, str] | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> None:
    """Merge safetensors files into one.

    Args:
        rule: A rule of the table.
        parents: The parents' files.
        weights: One a parent.
        out: The file to write; its folder exists.
        base: The base's file, where the rule takes one.
        settings: The rule's own, by name.
        statistics: A file a parent, where the rule needs them.
        metadata: Kept in the output's header.
        chunk_bytes: Working memory beside one tensor of the output and the mapped files.

    Raises:
        WeightsError: a file is missing or damaged.
        ValueError: the files cannot be merged, or the rule refuses them; nothing is left behind.
    """
    given = dict(settings or {})
    rule.check_settings(given)
    rule.check_count(len(parents))
    if len(weights) != len(parents):
        raise ValueError(f"got {len(weights)} weights for {len(parents)} parents; expected one weight for each parent")
    with ExitStack() as stack:
        maps = [stack.enter_context(open_mapped(path)) for path in parents]
        origin = None if base is None else stack.enter_context(open_mapped(base))
        further = [stack.enter_context(open_mapped(path)) for path in statistics]
        files = {f"parent {i}, {opened.path}": opened.entries for i, opened in enumerate(maps)}
        check_files(files | ({} if origin is None else {f"the base, {origin.path}": origin.entries}))

        def merge(names: Sequence[str]) -> dict[str, Tensor]:
            # Statistics of a layer's inputs exist for some tensors only.
            known = [[name for name in names if name in own.entries] for own in further]
            extra = [{n: own.tensor(n) for n in of} for own, of in zip(further, known, strict=True)]
            configured = rule.configured({**given, **({"statistics": extra} if extra else {})})
            merged = configured(
                [{name: opened.tensor(name) for name in names} for opened in maps],
                weights,
                None if origin is None else {name: origin.tensor(name) for name in names},
                chunk_bytes=chunk_bytes,
            )
            for opened, name in itertools.product([*maps, *([] if origin is None else [origin])], names):
                opened.forget(name)
            return merged

        units: dict[str, list[str]] = {}
        for name in maps[0].entries:
            units.setdefault(rule.unit_of(name), []).append(name)
        write_units(out, maps[0].entries, list(units.values()), merge, metadata)


def write_units(
    out: Path,
    entries: Mapping[str, TensorEntry],
    units: Sequence[Sequence[str]],
    make: Callable[[Sequence[str]], Mapping[str, Tensor]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file whose tensors are made while it is written.

    Args:
        out: The file; it appears when it is whole.
        entries: What each tensor will be, by name; where they start is decided here.
        units: The names in groups, each made at once.
        make: Gives the tensors of a group.
        metadata: Kept in the header.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    starts, position = {}, 0
    # The widest first, as safetensors itself does it, so that every tensor is aligned to its own element.
    for name in sorted(entries, key=lambda n: (-_DTYPES[entries[n].dtype].itemsize, n)):
        entry = entries[name]
        starts[name] = position
        header[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [position, position + entry.num_bytes],
        }
        position += entry.num_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + position)
            for names in units:
                for name, tensor in make(names).items():
                    file.seek(8 + len(text) + starts[name])
                    flat = tensor.contiguous().reshape(-1)
                    if flat.numel():
                        file.write(flat.view(torch.uint8).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(out.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)
