"""Name -> tensor maps: reading, writing, digesting and ordering them.

Invariants
- No function changes a tensor or a map it was given.
- A digest depends on names, dtypes, shapes and bytes alone: not on insertion order, strides, device or file.

Driven by the rules in this package, and by whoever stores or publishes a merged policy.
"""

import functools
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from coharness.records.errors import WeightsError

TensorMap: TypeAlias = Mapping[str, Tensor]

DEFAULT_CHUNK_BYTES: Final = 8 * 2**20
"""Working memory of a merge beside its inputs and its result."""

_FIRST_BLOCK_BYTES: Final = 4 * 2**10
_LAST_BLOCK_BYTES: Final = 2**20


@final
class LazyTensorMap(Mapping[str, Tensor]):
    """A safetensors file seen as a map: a tensor is read when asked for and not kept.

    Made by `open_map`; usable only inside its `with` block.
    """

    __slots__ = ("_handle", "_names")

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._names: dict[str, None] = dict.fromkeys(sorted(handle.keys()))

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._handle.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@contextmanager
def open_map(path: Path) -> Iterator[LazyTensorMap]:
    """Open a safetensors file as a lazy map on the CPU; the file is closed when the block ends.

    Raises:
        WeightsError: the file is missing or is not a whole safetensors file.
    """
    try:
        opened = safe_open(path, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise WeightsError(
            f"cannot read weights from {path}: {error}; expected a complete safetensors file (was the write interrupted?)"
        ) from error
    with opened as handle:
        yield LazyTensorMap(handle)


def load_map(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file, on the CPU, by name in sorted order; raises WeightsError as `open_map` does."""
    with open_map(path) as lazy:
        return dict(lazy)


def save_map(path: Path, tensors: TensorMap, metadata: Mapping[str, str] | None = None) -> None:
    """Write a map as safetensors: a temporary file in the same folder, fsync, rename; a reader sees all of it or nothing.

    Tensors that share storage are written as separate copies, since safetensors knows no aliases.

    Raises:
        OSError: the folder is missing or not writable.
    """
    # safetensors refuses aliases and views; a clone is needed only where a tensor is not the whole of its own storage.
    seen: set[int] = set()
    plain: dict[str, Tensor] = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        plain[name] = tensor
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(plain, temporary, metadata=dict(metadata) if metadata is not None else None)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def map_digest(tensors: TensorMap) -> str:
    """The sha256 hex digest over sorted names, each with its dtype, shape and raw little-endian bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        # Length-prefixed, so that no name can run over into the header that follows it.
        header = f"{len(name.encode())}:{name}|{tensor.dtype}|{','.join(map(str, tensor.shape))}|{tensor.nbytes}|"
        digest.update(header.encode())
        digest.update(_raw(flat(tensor).cpu()).numpy().data)
    return digest.hexdigest()


def flat(tensor: Tensor) -> Tensor:
    """The tensor without gradient as [numel]; shares memory when it is contiguous, else it is one copy of it."""
    return tensor.detach().reshape(-1)


def accumulation_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype sums are kept in: float32; float64 for float64 tensors and for scalars (where it costs nothing)."""
    return torch.float64 if tensor.dtype == torch.float64 or tensor.dim() == 0 else torch.float32


def all_finite(values: Tensor) -> bool:
    """Whether a floating tensor holds no NaN and no infinity; one pass, without the masks that `isfinite` builds."""
    if values.numel() == 0:
        return True
    # float8 has no arithmetic; widening keeps NaN and infinity.
    wide = values.float() if values.dtype.itemsize < 2 else values
    # A sum is finite only if every term is, and costs a quarter of a minimum; finite terms that overflow it are looked at again.
    if math.isfinite(wide.sum().item()):
        return True
    smallest, largest = torch.aminmax(wide)
    return math.isfinite(smallest.item()) and math.isfinite(largest.item())  # either is NaN as soon as one value is


def compare_bytes(left: Tensor, right: Tensor) -> int:
    """-1, 0 or 1: the order of two 1-D tensors by their raw bytes, read only up to the block where they first differ."""
    a, b = _raw(left), _raw(right)
    start, block = 0, _FIRST_BLOCK_BYTES
    while start < max(a.numel(), b.numel()):
        left_block = a[start : start + block].cpu().numpy().tobytes()
        right_block = b[start : start + block].cpu().numpy().tobytes()
        if left_block != right_block:
            return -1 if left_block < right_block else 1
        start, block = start + block, min(4 * block, _LAST_BLOCK_BYTES)
    return 0


def canonical_order(parents: Sequence[Sequence[Tensor]], weights: Sequence[float]) -> list[int]:
    """Indices of the parents sorted by weight, then by the raw bytes of their tensors (each [numel]).

    Parents that tie on both are interchangeable, so a sum taken in this order has the same bits however the caller ordered
    them. Unlike a digest it costs almost nothing: two parents are read only as far as they agree.
    """

    def compare(i: int, j: int) -> int:
        if weights[i] != weights[j]:
            return -1 if weights[i] < weights[j] else 1
        return next((c for a, b in zip(parents[i], parents[j], strict=True) if (c := compare_bytes(a, b))), 0)

    return sorted(range(len(parents)), key=functools.cmp_to_key(compare))


def _raw(flat_tensor: Tensor) -> Tensor:
    contiguous = flat_tensor.contiguous()
    # With no or one element torch calls any stride contiguous, but only views stride 1 as bytes.
    return contiguous.as_strided((contiguous.numel(),), (1,)).view(torch.uint8)  # [numel * itemsize]
