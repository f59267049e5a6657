"""The canary: one number by which two processes tell whether they hold the same weights.

A digest says that the right bytes were read; the canary says that the model computes with them (an adapter that was loaded
but not switched on, a layer left at its old values and a wrong scale all pass a digest). It is the summed log-probability of a
text fixed by the base's vocabulary. Driven by trainers when they publish, by engines when they load.
"""

from typing import TYPE_CHECKING, Final

from coharness.policy.codec import BaseCodec
from coharness.policy.noise import splitmix64

if TYPE_CHECKING:
    from torch import nn

CANARY_TOKENS: Final = 32
CANARY_TOLERANCE: Final = 1e-2
"""Largest difference, in nats over the whole text, that rounding may explain: float32 kernels agree to about 1e-4, one optimizer
step at a usable learning rate moves the canary by more than 1e-1."""
_SEED: Final = 0xC0FFEE


def canary_ids(codec: BaseCodec) -> list[int]:
    """The canary text: `CANARY_TOKENS` ordinary token ids, a pure function of the vocabulary."""
    ordinary = [i for i in range(codec.vocab_size) if i not in codec.special_ids]
    return [ordinary[int(splitmix64(_SEED + i)) % len(ordinary)] for i in range(CANARY_TOKENS)]


def canary_logprob(model: "nn.Module", codec: BaseCodec) -> float:
    """Sum of log-probabilities of the canary's tokens after its first, in nats, added up in float64.

    The model may be in any mode and hold any adapter; it is run in eval mode and left as it was found.
    """
    import torch

    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            ids = torch.tensor([canary_ids(codec)])  # [1, T]
            logits = model(input_ids=ids, use_cache=False).logits[0, :-1].double()  # [T - 1, V]
            chosen = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])
            return float(chosen.sum())
    finally:
        model.train(was_training)
