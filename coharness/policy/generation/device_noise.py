"""The noise of `policy.noise` on an accelerator: the same bits, made where the logits are.

A row of noise is as wide as the vocabulary and is needed at every step; over the bus it would cost more than the step. Torch has
no unsigned 32-bit arithmetic, so the finaliser runs in 64 bits under a mask. The uniform bits equal those of `gumbel_noise`;
the two logarithms may differ in the last place.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coharness.policy.noise import splitmix64

_MASK: Final = 0xFFFFFFFF
_STEP: Final = 0x9E3779B9
_LARGEST: Final = 4294967040.0


def device_gumbel_noise(
    seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64], vocab_size: int, device: torch.device
) -> Tensor:
    """Standard Gumbel noise for one decoding step, on `device`.

    Args:
        seeds: Episode seeds [B].
        positions: Index of the token in its episode's stream [B].
        vocab_size: V.
        device: Where the noise is wanted.

    Returns:
        Noise, float32 [B, V], finite; row b is that of `policy.noise.gumbel_noise` up to rounding.
    """
    keys = [
        splitmix64(splitmix64(seed) + position)
        for seed, position in zip(seeds.tolist(), positions.tolist(), strict=True)
    ]
    high = torch.tensor([key >> 32 for key in keys], device=device)[:, None]  # [B, 1], int64
    low = torch.tensor([key & _MASK for key in keys], device=device)[:, None]
    tokens = torch.arange(vocab_size, device=device) * _STEP  # [V]
    bits = (tokens + high) & _MASK  # [B, V]
    bits ^= bits >> 16
    bits = (bits * 0x21F0AAAD) & _MASK
    # The key enters half-way, so that two rows whose counters overlap still differ.
    bits = ((bits ^ (bits >> 15)) + low) & _MASK
    bits = (bits * 0xD35A2D97) & _MASK
    bits ^= bits >> 15
    uniform = bits.float().clamp_(0.5, _LARGEST).mul_(-(2.0**-32))
    return uniform.log1p_().neg_().log_().neg_()
