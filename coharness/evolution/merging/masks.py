"""Random bits that depend on (seed, tensor name, parent's rank, index) and on nothing else.

Philox (Salmon et al., 2011) turns a key and a counter into bits, so the bits of element i are there without those before it: a
mask is the same however a tensor is cut into chunks, in whichever order tensors are merged, and can be made twice instead of
kept. No global random state exists. Driven by the rules that drop at random.
"""

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

_WORDS: Final = 8
"""32-bit words of one Philox block of four 64-bit ones."""


def random_words(seed: int, name: str, rank: int, start: int, count: int) -> npt.NDArray[np.uint32]:
    """Uniform 32-bit words of the elements `start` to `start + count` of one tensor of one parent.

    Args:
        seed: Of the merge.
        name: The tensor's.
        rank: The parent's, in canonical order.
        start: First element, 0 or more.
        count: How many.
    """
    parts = "\x1f".join((str(seed), str(rank), name))
    key = np.frombuffer(hashlib.blake2b(parts.encode(), digest_size=16).digest(), dtype="<u8")
    first = start // _WORDS
    skipped = start - first * _WORDS
    num_blocks = -(-(skipped + count) // _WORDS)
    raw = np.random.Philox(key=key, counter=[first, 0, 0, 0]).random_raw(num_blocks * (_WORDS // 2))
    words: npt.NDArray[np.uint32] = raw.astype("<u8", copy=False).view("<u4")
    return words[skipped : skipped + count]


def word_threshold(probability: float) -> int:
    """The number of 32-bit words out of 2^32 that `probability` (0 to 1) stands for: words below it say yes."""
    return round(probability * 2.0**32)
