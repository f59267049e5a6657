"""Selecting the k largest of a stream of magnitudes, exactly, in bounded memory.

Most of the k are told by a bracket around the k-th largest value, estimated from a sample (Floyd and Rivest, 1975): one pass
counts what lies above it and keeps what lies inside, and the k-th is found among the kept. Where the bracket misses, or holds
more than fits (ties, mostly zeros), passes over the bits of the values, 16 at a time from the top, find it all the same: floats
that are not negative are ordered as their bits are.

Invariants: the set depends on values and positions alone, not on the sample, the chunks or the memory there is; of equal
values at the edge, those with the lowest indices belong to the set. Driven by the rules that trim.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Values: TypeAlias = npt.NDArray[np.floating[Any]]
Stream: TypeAlias = Callable[[], Iterator[Tensor]]
"""Reads all values once more, in order: chunks [n] of one float dtype, finite and not negative, valid until the next."""

_SAMPLE: Final = 2**15
_DEVIATIONS: Final = 5.0
"""Half width of the bracket in standard deviations of a sample quantile: a random sample misses once in a million times."""
_DIGIT_BITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The k largest values of a stream: those above `value`, and those equal to it up to index `last`."""

    value: float
    last: int
    "Index of the last value equal to `value` that belongs to the set; -1 where none does."
    whole: bool
    "Every value equal to `value` belongs to the set, so that `last` need not be looked at."

    def holds(self, values: Values, start: int) -> npt.NDArray[np.bool_]:
        """Which values belong to the set.

        Args:
            values: A chunk [n] of the stream.
            start: Index of its first value.
        """
        if self.whole or start + len(values) <= self.last + 1:
            return np.asarray(values >= self.value)
        held = np.asarray(values > self.value)
        edge = max(0, self.last + 1 - start)
        held[:edge] |= values[:edge] == self.value
        return held


NOTHING: Final = Cut(value=math.inf, last=-1, whole=False)
"""The cut that holds no value."""


def largest(stream: Stream, numel: int, count: int, sample: Tensor, capacity: int) -> Cut:
    """The cut that holds the `count` largest values.

    Args:
        stream: The values.
        numel: How many there are.
        count: 0 to numel.
        sample: Some of the values, spread over the stream; it decides how fast the answer comes, not which.
        capacity: Values that may be kept at once.

    Raises:
        ValueError: count is out of range.
    """
    if not 0 <= count <= numel:
        raise ValueError(f"asked for the {count} largest of {numel} values; expected a number from 0 to {numel}")
    if count == 0:
        return NOTHING
    found = _bracketed(stream, numel, count, sample, capacity) or _by_bits(stream, count)
    value, num_above, num_equal = found
    wanted = count - num_above
    if wanted == num_equal:
        return Cut(value=value, last=numel - 1, whole=True)
    return Cut(value=value, last=_index_of_equal(stream, value, wanted), whole=False)


def sample_of(values: Tensor) -> Tensor:
    """At most 32,768 values of a flat tensor, evenly spread."""
    return values[:: max(1, values.numel() // _SAMPLE)]


_Found: TypeAlias = tuple[float, int, int]
"""(the value at the edge, how many are above it, how many equal it)"""


def _bracketed(stream: Stream, numel: int, count: int, sample: Tensor, capacity: int) -> _Found | None:
    low, high = 0.0, math.inf
    if numel > capacity:
        ranked = np.sort(sample.numpy())[::-1]
        share, size = count / numel, len(ranked)
        middle, half = share * size, _DEVIATIONS * math.sqrt(size * share * (1 - share)) + _DEVIATIONS
        high = float(ranked[int(middle - half)]) if middle - half >= 0 else math.inf
        low = float(ranked[int(middle + half)]) if middle + half < size else 0.0
    num_above = num_kept = 0
    kept: list[Values] = []
    for chunk in stream():
        values = chunk.numpy()
        num_above += int(np.count_nonzero(values > high))
        kept.append(values[(values >= low) & (values <= high)])
        num_kept += len(kept[-1])
        if num_kept > max(capacity, 1):
            return None
    if not num_above < count <= num_above + num_kept:
        return None
    inside = np.concatenate(kept)
    place = num_kept - (count - num_above)
    value = np.partition(inside, place)[place]
    num_above += int(np.count_nonzero(inside > value))
    return float(value), num_above, int(np.count_nonzero(inside == value))


def _by_bits(stream: Stream, count: int) -> _Found:
    prefix = num_above = num_equal = 0
    kind = next(stream()).numpy().dtype
    bits = np.dtype(f"u{kind.itemsize}")
    for shift in range(8 * kind.itemsize - _DIGIT_BITS, -1, -_DIGIT_BITS):
        counts = np.zeros(1 << _DIGIT_BITS, dtype=np.int64)
        for chunk in stream():
            # Zeros of either sign are one value, and have one spelling in bits only after this.
            words = (chunk.numpy() + kind.type(0)).view(bits) >> bits.type(shift)
            if shift + _DIGIT_BITS < 8 * kind.itemsize:
                words = words[(words >> bits.type(_DIGIT_BITS)) == bits.type(prefix)]
            counts += np.bincount(words & bits.type((1 << _DIGIT_BITS) - 1), minlength=len(counts))
        from_top = np.cumsum(counts[::-1])
        place = int(np.searchsorted(from_top, count - num_above))
        digit = len(counts) - 1 - place
        num_above += int(from_top[place] - counts[digit])
        num_equal = int(counts[digit])
        prefix = (prefix << _DIGIT_BITS) | digit
    value = float(np.array([prefix], dtype=bits).view(kind)[0])
    return value, num_above, num_equal


def _index_of_equal(stream: Stream, value: float, wanted: int) -> int:
    """Index of the `wanted`-th value (from one) that equals `value`."""
    start = 0
    for chunk in stream():
        equal = np.flatnonzero(chunk.numpy() == value)
        if len(equal) >= wanted:
            return start + int(equal[wanted - 1])
        wanted -= len(equal)
        start += chunk.numel()
    raise AssertionError("the stream changed between two readings")


def as_lambda(cut: Cut, dtype: torch.dtype) -> float:
    """The largest number below `cut.value` in this dtype: what is above it is what a whole cut holds."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    return max(float(np.nextafter(kind(cut.value), kind(0))), 0.0)
