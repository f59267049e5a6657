"""The terms objectives are made of: token log-probabilities, divergences, entropy, importance weights, means.

Pure functions of tensors. Conventions: B rows, T predicted positions, V tokens; `mask` is true on tokens that are learned from;
log-ratios are clamped to ±`LOG_RATIO_BOUND` before they are exponentiated, so that no finite input gives an infinite term; a
masked position gives exactly 0 in value and in gradient, whatever stands there (NaN included).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_RATIO_BOUND: Final = 20.0


class Mean(StrEnum):
    """What an objective is averaged over."""

    TOKEN = "token"
    "All trained tokens of a step count alike; long answers weigh more (Yu et al., 2025, DAPO)."
    SEQUENCE = "sequence"
    "All rows of a step count alike; a token of a long answer weighs less (Shao et al., 2024)."


class Divergence(StrEnum):
    """Estimators of KL(p‖q) from tokens drawn from p, with x = log p - log q (Schulman, 2020)."""

    K1 = "k1"
    "x: unbiased, of either sign."
    K2 = "k2"
    "x²/2: biased, low variance, its gradient is that of the true KL when p is the policy that drew."
    K3 = "k3"
    "exp(-x) - 1 + x: unbiased, never negative."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenBatch:
    """One padded micro-batch as an objective sees it."""

    logprobs: Tensor
    "Of each token under the policy that is trained, with gradient [B, T]."
    mask: Tensor
    "Boolean [B, T]."
    weights: Tensor
    "Each token's share of the step's mean; sums to 1 over all micro-batches of a step, 0 where masked [B, T]."
    advantages: Tensor
    "[B]"
    behaviour: Tensor
    "Log-probabilities of the policy that drew the tokens [B, T]."
    proximal: Tensor
    "Log-probabilities of the policy that the update began with, without gradient [B, T]."
    reference: Tensor | None
    "Log-probabilities of the base, where the objective asked for them [B, T]."
    entropy: Tensor | None
    "Of the policy's distribution at each position, without gradient, where the objective asked for it [B, T]."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossParts:
    """What an objective says of one micro-batch."""

    loss: Tensor
    "Scalar with gradient; losses of a step's micro-batches add up to the step's loss."
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    "Metric -> (numerator, denominator); both add up over micro-batches and steps."
    peaks: dict[str, float] = field(default_factory=dict)
    "Metric -> value; the largest of micro-batches and steps counts."


def token_logprobs(logits: Tensor, targets: Tensor, temperatures: Tensor) -> Tensor:
    """Log-probability of each target under the temperature-scaled distribution, in float32 or wider.

    Args:
        logits: [..., V]
        targets: Token ids [...].
        temperatures: Divides the logits, > 0, [...].
    """
    scaled = _scaled(logits, temperatures)
    losses = F.cross_entropy(scaled.flatten(0, -2), targets.flatten(), reduction="none")
    return -losses.view(targets.shape)


def token_entropy(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Entropy in nats of the temperature-scaled distribution at each position: [..., V], [...] -> [...]."""
    logprobs = _scaled(logits, temperatures).log_softmax(-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """The log-ratio log p - log q of each token, clamped, 0 where masked; three [B, T] -> [B, T]."""
    # Masking before the arithmetic: 0 * inf behind it would be NaN, in the gradient if not in the value.
    zero = numerator.new_zeros(())
    difference = torch.where(mask, numerator, zero) - torch.where(mask, denominator, zero)
    return difference.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def divergence(kind: Divergence, logprobs: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """An estimate for each token of KL(p‖q): `logprobs` of p, `other` of q; three [B, T] -> [B, T], 0 where masked."""
    x = log_ratio(logprobs, other, mask)
    if kind is Divergence.K1:
        return x
    return x.square() / 2 if kind is Divergence.K2 else torch.expm1(-x) + x


def truncated_weights(proximal: Tensor, behaviour: Tensor, mask: Tensor, cap: float) -> Tensor:
    """min(p_proximal / p_behaviour, cap) of each token, without gradient, 0 where masked; three [B, T] -> [B, T].

    Source: truncated importance sampling (Ionides, 2008), for engine and staleness mismatch (Yao et al., 2025).
    """
    with torch.no_grad():
        return log_ratio(proximal, behaviour, mask).exp().clamp(max=cap) * mask


def mean_weights(mask: Tensor, mean: Mean, *, num_tokens: int, num_rows: int) -> Tensor:
    """Each token's weight in a mean over a whole step, of which `mask` [B, T] is one micro-batch; 0 where masked.

    Args:
        mask: Boolean [B, T].
        mean: What counts alike.
        num_tokens: Trained tokens of the step.
        num_rows: Rows of the step that have a trained token.
    """
    if mean is Mean.TOKEN:
        return mask / max(num_tokens, 1)
    return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * max(num_rows, 1))


def masked_sum(values: Tensor, mask: Tensor) -> float:
    """Sum of the values where `mask` holds; two [B, T] -> a number."""
    return float(torch.where(mask, values.detach(), values.new_zeros(())).sum())


def _scaled(logits: Tensor, temperatures: Tensor) -> Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide / temperatures.unsqueeze(-1)
