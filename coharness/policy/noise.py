"""Sampling noise that depends on (episode seed, position) and on nothing else.

Owns the stream of Gumbel noise behind every sampled token: `argmax(logits / T + noise)` is a draw from `softmax(logits / T)`
(Gumbel, 1954; Maddison, Tarlow & Minka, 2014). The noise of a token is a hash of (seed, position, token id), so a row draws the
same token alone and in any batch, on any worker, after any restart, and no global random state exists. Driven by the decoding
loop.

The row's key is splitmix64 (Steele, Lea & Flood, 2014) of seed and position; the token axis is a 32-bit finaliser (Wellons,
2018, "hash prospector"): three times as fast as 64 bits, and its 2^-32 grid is finer than float32 noise needs.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_BLOCK: Final = 1 << 16
"""Elements hashed at once; a block stays in the cache over the dozen passes that are made over it."""
_LARGEST: Final = 4294967040.0
"""The float32 just below 2^32, so that no uniform rounds up to 1."""


def splitmix64(value: int) -> int:
    """The splitmix64 hash of a non-negative integer, taken modulo 2^64."""
    return int(_splitmix64(np.array([value & _MASK], dtype=np.uint64))[0])


def gumbel_noise(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64], vocab_size: int) -> Tensor:
    """Standard Gumbel noise for one decoding step.

    Args:
        seeds: Episode seeds [B].
        positions: Index of the token in its episode's stream [B].
        vocab_size: V.

    Returns:
        Noise, float32 [B, V], finite; row b is a pure function of (seeds[b], positions[b]), of which V tokens are given.
    """
    keys = _splitmix64(_splitmix64(seeds) + positions)
    high = (keys >> np.uint64(32)).astype(np.uint32)[:, None]  # [B, 1]
    low = keys.astype(np.uint32)[:, None]  # [B, 1]
    tokens = np.arange(vocab_size, dtype=np.uint32) * np.uint32(_GOLDEN >> 32)  # [V]
    noise = torch.empty((len(seeds), vocab_size), dtype=torch.float32)
    rows = max(1, _BLOCK // vocab_size)
    for start in range(0, len(seeds), rows):
        block = slice(start, start + rows)
        bits = _mix32(tokens + high[block], low[block])
        out = noise[block]
        out.numpy()[...] = bits
        # log1p keeps full resolution where the exponential variate is small, which is where the winning token lies.
        out.clamp_(0.5, _LARGEST).mul_(-(2.0**-32)).log1p_().neg_().log_().neg_()
    return noise


def _mix32(bits: npt.NDArray[np.uint32], key: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Hash in place; `key` enters half-way, so that two rows whose counters overlap still differ."""
    shifted = bits >> np.uint32(16)
    bits ^= shifted
    bits *= np.uint32(0x21F0AAAD)
    np.right_shift(bits, np.uint32(15), out=shifted)
    bits ^= shifted
    bits += key
    bits *= np.uint32(0xD35A2D97)
    np.right_shift(bits, np.uint32(15), out=shifted)
    bits ^= shifted
    return bits


def _splitmix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = values + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
