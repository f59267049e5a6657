"""The bounded walk that every rule on name -> tensor maps is built on: one tensor after the other, one chunk after the other.

    maps ──▶ View (one tensor of all parents) ──prepare──▶ kernel ──▶ kernel(chunk, out), chunk by chunk ──▶ merged tensor

A rule is its `prepare`: it may read the view as often as it likes, in chunks, to learn what it needs of the whole tensor (a
threshold, a norm), and returns the kernel that merges one chunk.

Invariants
- No function changes a tensor it was given; the result shares no memory with the inputs.
- Parents are handed over in a canonical order (weight, then raw bytes), so that permuting parents and weights together cannot
  change one bit of a result. Whatever is random is keyed by a parent's rank in that order.
- Chunk sizes change no bit, as long as kernels are elementwise and reductions go by `View.blocks`, whose size is fixed.
- Tensors are merged one by one: a tensor's result depends on that tensor alone, so a caller may stream.
- Sums are kept in float32 (float64 for float64 tensors and scalars) and cast back once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from coharness.evolution.merging.maps import (
    DEFAULT_CHUNK_BYTES,
    TensorMap,
    accumulation_dtype,
    all_finite,
    canonical_order,
    compare_bytes,
    flat,
)
from coharness.evolution.merging.preflight import check_finite

_MOST_NUMEL: Final = 2**16
"""Elements of a chunk at most: a few buffers of this size stay in a core's own cache between their uses."""

_BLOCK_NUMEL: Final = 2**14
"""Elements of a reduction's block. Fixed, because the bits of a sum depend on where it is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of one tensor of all parents, in the accumulation dtype; it may alias the caller's tensors, so it is read only.

    Valid until the next chunk is asked for: buffers are used again.
    """

    start: int
    "Index of its first element in the flat tensor."
    parents: tuple[Tensor, ...]
    "One [chunk] a parent, in canonical order."
    extras: tuple[Tensor, ...]
    "One [chunk] a parent of what else the rule reads, such as Fisher information; empty where it reads nothing else."
    base: Tensor | None
    "[chunk]"

    @property
    def origin(self) -> Tensor:
        """The base's chunk, where the rule cannot be called without one."""
        assert self.base is not None
        return self.base


Kernel: TypeAlias = Callable[[Chunk, Tensor], None]
"""Merges one chunk into `out`, [chunk] in the accumulation dtype and not initialised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One tensor of all parents, flat and in canonical order, with the means to read it in bounded memory."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    "What sums are kept in."
    parents: tuple[Tensor, ...]
    "Each [numel], in its own dtype."
    weights: tuple[float, ...]
    extras: tuple[Tensor, ...]
    base: Tensor | None
    chunk_bytes: int

    @property
    def numel(self) -> int:
        """Elements of the tensor."""
        return self.parents[0].numel()

    @property
    def row_numel(self) -> int:
        """Elements of a row: of all axes but the first; a tensor of less than two axes is one row."""
        return max(self.numel // self.shape[0], 1) if len(self.shape) > 1 and self.shape[0] else max(self.numel, 1)

    @property
    def chunk_numel(self) -> int:
        """Elements of a chunk within the byte budget: parents, extras and base widened, and as many buffers again."""
        buffers = 2 * (len(self.parents) + len(self.extras) + 2)
        return max(1, min(_MOST_NUMEL, self.chunk_bytes // (self.dtype.itemsize * buffers)))

    def scratch(self, count: int, size: int | None = None) -> Tensor:
        """Buffers for a kernel, [count, chunk] in the accumulation dtype; cut each to the chunk at hand."""
        return torch.empty((count, self.chunk_numel if size is None else size), dtype=self.dtype)

    def chunks(self, size: int | None = None) -> Iterator[Chunk]:
        """All chunks in order.

        Args:
            size: Elements of a chunk; as many as the budget allows where left out.
        """
        size = self.chunk_numel if size is None else size
        sources = [*self.parents, *self.extras, *([] if self.base is None else [self.base])]
        wide = {
            i: torch.empty(size, dtype=self.dtype) for i, source in enumerate(sources) if source.dtype != self.dtype
        }
        num_parents, num_extras = len(self.parents), len(self.extras)
        for start in range(0, self.numel, size):
            parts = [source[start : start + size] for source in sources]
            for i, buffer in wide.items():
                parts[i] = buffer[: parts[i].numel()].copy_(parts[i])
            yield Chunk(
                start=start,
                parents=tuple(parts[:num_parents]),
                extras=tuple(parts[num_parents : num_parents + num_extras]),
                base=None if self.base is None else parts[-1],
            )

    def blocks(self) -> Iterator[Chunk]:
        """All chunks at a size that depends on nothing: what sums over a tensor are taken by."""
        return self.chunks(_BLOCK_NUMEL)

    def magnitudes(self, parent: int, size: int | None = None) -> Iterator[Tensor]:
        """|theta_i - base| chunk by chunk, in one buffer that is used again.

        Args:
            parent: i, in canonical order.
            size: As in `chunks`.
        """
        size = self.chunk_numel if size is None else size
        assert self.base is not None
        wide, origin = self.scratch(2, size)
        for start in range(0, self.numel, size):
            theirs, mine = self.base[start : start + size], self.parents[parent][start : start + size]
            count = mine.numel()
            if mine.dtype != self.dtype:
                mine, theirs = wide[:count].copy_(mine), origin[:count].copy_(theirs)
            yield torch.sub(mine, theirs, out=wide[:count]).abs_()


Prepare: TypeAlias = Callable[[View], Kernel]
"""Reads what a rule needs of a whole tensor and returns the kernel for its chunks, which are then taken once and in order."""


def merge_maps(
    maps: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None,
    prepare: Prepare,
    *,
    idempotent: bool,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    extras: Sequence[TensorMap] = (),
    by_rows: bool = False,
    propagates: bool = False,
) -> dict[str, Tensor]:
    """Apply a rule to maps that passed `preflight.check_mergeable`.

    Args:
        maps: The parents, at least one; contiguous tensors are read in place, others are copied one tensor at a time.
        weights: One coefficient a parent, as the kernel is to see it.
        base: What deltas are taken from, or None for rules that take none.
        prepare: The rule.
        idempotent: The rule returns x when every parent is x, up to rounding. A tensor on which all parents agree to the bit
            (a frozen layer) is then copied instead, and so free of rounding.
        chunk_bytes: Bound on the memory in use beside inputs and result; what sums over a tensor are taken by (16,384 elements
            a parent) is the least it can be.
        extras: A further map a parent, of the parents' names and shapes; it decides the order together with the parent.
        by_rows: Chunks are whole rows, so at least one row whatever the budget.
        propagates: A NaN or an infinity of any input always shows in the result, so that the inputs need no reading of their
            own: they are searched only once the result is not finite.

    Returns:
        Merged tensors in the parents' shapes and dtypes, by name in sorted order. Integer and bool tensors, on which mergeable
        parents agree, are copied.

    Raises:
        ValueError: chunk_bytes is not positive, an input is not finite, or a result does not fit its dtype.
    """
    if chunk_bytes < 1:
        raise ValueError(
            f"chunk_bytes is {chunk_bytes}; expected a positive number of bytes, such as {DEFAULT_CHUNK_BYTES}"
        )
    merged: dict[str, Tensor] = {}
    for name in sorted(maps[0]):
        labelled = {f"map {i}": tensors[name] for i, tensors in enumerate(maps)}
        labelled |= {f"the statistics of map {i}": tensors[name] for i, tensors in enumerate(extras)}
        labelled |= {"base": base[name]} if base is not None else {}
        like = labelled["map 0"]
        if not propagates:
            _check_inputs(name, labelled)
        parents = [flat(labelled[f"map {i}"]) for i in range(len(maps))]
        if not like.is_floating_point() or (idempotent and _agree(parents)):
            check_finite(name, "map 0", like)
            merged[name] = like.detach().clone(memory_format=torch.contiguous_format)
            continue
        further = [flat(tensors[name]) for tensors in extras]
        order = canonical_order([[parent, *further[i : i + 1]] for i, parent in enumerate(parents)], weights)
        view = View(
            name=name,
            shape=tuple(like.shape),
            dtype=accumulation_dtype(like),
            parents=tuple(parents[i] for i in order),
            weights=tuple(weights[i] for i in order),
            extras=tuple(further[i] for i in order) if further else (),
            base=None if base is None else flat(base[name]),
            chunk_bytes=chunk_bytes,
        )
        merged[name], is_finite = _merge_view(view, like, prepare, by_rows=by_rows)
        if not is_finite:
            _check_inputs(name, labelled)
            raise ValueError(
                f"tensor {name!r}: the merged values do not fit {like.dtype} (overflow from finite parents); expected weights "
                f"and scale of moderate size, got weights {list(view.weights)}"
            )
    return merged


def _merge_view(view: View, like: Tensor, prepare: Prepare, *, by_rows: bool) -> tuple[Tensor, bool]:
    """The merged tensor, and whether it is finite; a tensor that is not may be left half written."""
    merged = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    if not like.numel():
        return merged, True
    out = merged.view(-1)
    size = max(1, view.chunk_numel // view.row_numel) * view.row_numel if by_rows else view.chunk_numel
    kernel = prepare(view)
    sums = view.scratch(1, size)[0] if like.dtype != view.dtype else None
    for chunk in view.chunks(size):
        part = out[chunk.start : chunk.start + size]
        if sums is None:
            kernel(chunk, part)
        else:
            kernel(chunk, sums[: part.numel()])
            part.copy_(sums[: part.numel()])
        if not all_finite(part):
            return merged, False
    return merged, True


def _agree(parents: Sequence[Tensor]) -> bool:
    return all(compare_bytes(parents[0], other) == 0 for other in parents[1:])


def _check_inputs(name: str, labelled: Mapping[str, Tensor]) -> None:
    for label, tensor in labelled.items():
        check_finite(name, label, tensor)
