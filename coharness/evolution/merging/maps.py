"""Name -> tensor maps: reading, writing and digesting them, and the bounded walk every elementwise merge rule is built on.

Invariants
- No function changes a tensor or a map it was given.
- A digest depends on names, dtypes, shapes and bytes alone: not on insertion order, strides, device or file.
- `merge_elementwise` hands parents to a kernel in a canonical order (weight, then raw bytes), so permuting parents and
  weights together cannot change one bit of the result; nor can the chunk size, as long as the kernel is elementwise.

Driven by the rules in this package, and by whoever stores or publishes a merged policy.
"""

import functools
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Working memory of an elementwise merge beside its result; small enough that a chunk stays in cache between its uses."""

Kernel: TypeAlias = Callable[[Sequence[Tensor], Sequence[float], Tensor | None], Tensor]
"""(parents' chunks, their weights, base chunk or None) -> merged chunk, all [chunk] in the accumulation dtype. The inputs may
alias the caller's tensors, so a kernel never writes to them."""

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
    # float8 has no comparisons; widening keeps NaN and infinity.
    smallest, largest = torch.aminmax(values.float() if values.dtype.itemsize < 2 else values)
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


def merge_elementwise(
    maps: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None,
    kernel: Kernel,
    *,
    idempotent: bool,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """Apply an elementwise kernel to mergeable maps (see `preflight.check_mergeable`), one tensor and one chunk at a time.

    Args:
        maps: The parents, at least one; contiguous tensors are read in place, others are copied one tensor at a time.
        weights: One coefficient a parent, as the kernel is to see it.
        base: What deltas are taken from, or None for rules that take none.
        kernel: The rule.
        idempotent: The kernel returns x when every parent is x, up to rounding. A tensor on which all parents agree to the bit
            (a frozen layer) is then copied instead, and so free of rounding.
        chunk_bytes: Bound on the memory in use beside inputs and result.

    Returns:
        Merged tensors in the parents' shapes and dtypes, by name in sorted order, sharing no memory with the inputs. Integer and
        bool tensors, on which mergeable parents agree, are copied.

    Raises:
        ValueError: chunk_bytes is not positive, or a result does not fit its dtype.
    """
    if chunk_bytes < 1:
        raise ValueError(
            f"chunk_bytes is {chunk_bytes}; expected a positive number of bytes, such as {DEFAULT_CHUNK_BYTES}"
        )
    return {
        name: _merge_tensor(
            name,
            [tensors[name] for tensors in maps],
            weights,
            None if base is None else base[name],
            kernel,
            idempotent=idempotent,
            chunk_bytes=chunk_bytes,
        )
        for name in sorted(maps[0])
    }


def _merge_tensor(
    name: str,
    tensors: Sequence[Tensor],
    weights: Sequence[float],
    base: Tensor | None,
    kernel: Kernel,
    *,
    idempotent: bool,
    chunk_bytes: int,
) -> Tensor:
    like = tensors[0]
    parents = [flat(tensor) for tensor in tensors]
    agree = idempotent and all(compare_bytes(parents[0], other) == 0 for other in parents[1:])
    if agree or not like.is_floating_point():
        return like.detach().clone(memory_format=torch.contiguous_format)
    order = canonical_order([[parent] for parent in parents], weights)
    ordered_weights = [weights[i] for i in order]
    flat_base = None if base is None else flat(base)
    dtype = accumulation_dtype(like)
    # Alive at once: a widened chunk of every parent and of the base, the kernel's sum and its scratch.
    chunk = max(1, chunk_bytes // (dtype.itemsize * (len(parents) + 3)))
    merged = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    out = merged.view(-1)
    for start in range(0, like.numel(), chunk):
        part = slice(start, start + chunk)
        base_chunk = None if flat_base is None else flat_base[part].to(dtype)
        result = kernel([parents[i][part].to(dtype) for i in order], ordered_weights, base_chunk)
        out[part] = result
        if not all_finite(out[part]):
            raise ValueError(
                f"tensor {name!r}: the merged values do not fit {like.dtype} (overflow from finite parents); expected weights "
                f"and scale of moderate size, got weights {ordered_weights}"
            )
    return merged


def _raw(flat_tensor: Tensor) -> Tensor:
    contiguous = flat_tensor.contiguous()
    # With no or one element torch calls any stride contiguous, but only views stride 1 as bytes.
    return contiguous.as_strided((contiguous.numel(),), (1,)).view(torch.uint8)  # [numel * itemsize]
