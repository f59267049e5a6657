"""Near-copies by MinHash over word shingles (Broder, 1997), with banding so that few pairs are ever compared."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
NUM_HASHES = 64
BANDS = 16
"""Bands of four hashes: pairs of similarity .8 are compared with chance .9998, of .3 with .12."""
_PRIME = (1 << 61) - 1
_WORD = re.compile(r"\w+")


def shingles(text: str, size: int = 3) -> set[int]:
    """Hashes of runs of `size` words; of the single words where there are fewer."""
    words = [word.lower() for word in _WORD.findall(text)]
    runs = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)] or [(word,) for word in words]
    return {
        int.from_bytes(hashlib.blake2b(" ".join(run).encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")
        for run in runs
    }


def _coefficients() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    rng = np.random.default_rng(20_240_229)
    return (
        rng.integers(1, 1 << 29, NUM_HASHES, dtype=np.uint64),
        rng.integers(0, _PRIME, NUM_HASHES, dtype=np.uint64),
    )


_A, _B = _coefficients()


def signature(text: str) -> npt.NDArray[np.uint64]:
    """The MinHash signature of a text [NUM_HASHES]; the share of equal entries estimates the Jaccard similarity."""
    hashes = np.fromiter(shingles(text), dtype=np.uint64)
    if not len(hashes):
        return np.zeros(NUM_HASHES, dtype=np.uint64)
    # a < 2^29 and h < 2^32: the product and the sum stay below 2^63.
    table = (_A[:, None] * hashes[None, :] + _B[:, None]) % np.uint64(_PRIME)
    return np.asarray(table.min(axis=1))


def similarity(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> float:
    """Estimated Jaccard similarity of two signatures."""
    return float((a == b).mean())


def drop_near_copies(items: Sequence[T], *, key: Callable[[T], str], threshold: float = 0.9) -> list[T]:
    """The items without those that are nearly copies of an earlier one, in order."""
    kept: list[T] = []
    signatures: list[npt.NDArray[np.uint64]] = []
    buckets: dict[tuple[int, bytes], list[int]] = {}
    for item in items:
        mine = signature(key(item))
        near = {index for band in _bands(mine) for index in buckets.get(band, ())}
        if any(similarity(mine, signatures[index]) >= threshold for index in near):
            continue
        for band in _bands(mine):
            buckets.setdefault(band, []).append(len(kept))
        kept.append(item)
        signatures.append(mine)
    return kept


def _bands(values: npt.NDArray[np.uint64]) -> Iterator[tuple[int, bytes]]:
    rows = NUM_HASHES // BANDS
    for band in range(BANDS):
        yield band, values[band * rows : (band + 1) * rows].tobytes()
