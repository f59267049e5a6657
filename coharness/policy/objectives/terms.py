"""The terms objectives are made of: token log-probabilities, divergences, entropy, importance weights, means.

Pure functions of tensors. Conventions: B rows, T predicted positions, V tokens; `mask` is true on tokens that are learned from;
log-ratios are clamped to ±`LOG_RATIO_BOUND` before they are exponentiated, so that no finite input gives an infinite term; a
masked position gives exactly 0 in value and in gradient, whatever stands there (NaN included).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from coharness.policy.rows import FloatArray

LOG_RATIO_BOUND: Final = 20.0


class Mean(StrEnum):
    """What an objective is averaged over."""

    TOKEN = "token"
    "All trained tokens of a step count alike; long answers weigh more (Yu et al., 2025, DAPO)."
    SEQUENCE = "sequence"
    "All rows of a step count alike; a token of a long answer weighs less (Shao et al., 2024)."
    CONSTANT = "constant"
    "Tokens count alike, and a row counts as a fixed number of them, so that length has no price (Liu et al., 2025, Dr. GRPO)."


class Level(StrEnum):
    """What an importance ratio is of."""

    TOKEN = "token"
    "Each token by itself: biased, of low variance."
    SEQUENCE = "sequence"
    "The whole answer, the product over its tokens: unbiased, of a variance that grows with its length."
    GEOMETRIC = "geometric"
    "The whole answer, the geometric mean over its tokens: how far the policies are apart a token."


class Rule(StrEnum):
    """What becomes of a large importance ratio."""

    TRUNCATE = "truncate"
    "It is cut down to the cap (Ionides, 2008; Yao et al., 2025)."
    MASK = "mask"
    "What it belongs to is left out, as is what lies below a floor."
    NONE = "none"
    "There is no correction: all weights are 1."


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
    "Each token's share of the step's mean, 0 where masked; sums to 1 over a step but under `Mean.CONSTANT` [B, T]."
    advantages: Tensor
    "[B]"
    behaviour: Tensor
    "Log-probabilities of the policy that drew the tokens [B, T]."
    proximal: Tensor
    "Log-probabilities of the policy that the update began with, without gradient [B, T]."
    reference: Tensor | None
    "Log-probabilities of the base, where the objective asked for them [B, T]."
    entropy: Tensor | None
    "Of the policy's distribution at each position, where the objective asked for it, with gradient where asked [B, T]."
    values: Tensor | None = None
    "What the critic expects from each position on, with gradient, where the objective has one [B, T]."
    targets: "Targets | None" = None
    "What the critic was to learn when the update began, where the objective has one."
    baseline: float = 0.0
    "The number that the objective fixed when the update began."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """What an actor and its critic were to learn when the update began, for one micro-batch."""

    values: Tensor
    "What the critic expected then [B, T]."
    advantages: Tensor
    "Of each token [B, T]."
    returns: Tensor
    "What the critic is to expect [B, T]."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossParts:
    """What an objective says of one micro-batch."""

    loss: Tensor
    "Scalar with gradient; losses of a step's micro-batches add up to the step's loss."
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    "Metric -> (numerator, denominator); both add up over micro-batches and steps."
    peaks: dict[str, float] = field(default_factory=dict)
    "Metric -> value; the largest of micro-batches and steps counts."


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a trainer must work out for an objective besides the log-probabilities of its tokens."""

    reference: bool = False
    "Log-probabilities of the base."
    proximal: bool = False
    "Log-probabilities of the policy that the update began with."
    entropy: bool = False
    entropy_gradient: bool = False
    critic: bool = False
    "Values of a head on the policy's trunk, which is then trained."


class Snapshot(Protocol):
    """Passes over all rows as the update begins, made when they are asked for; without gradient, 0 at masked tokens [N]."""

    def logprobs(self) -> FloatArray:
        """Log-probabilities under the member."""
        ...

    def reference(self) -> FloatArray:
        """Log-probabilities under the base."""
        ...

    def values(self) -> FloatArray:
        """What the member's critic expects."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """What an objective fixes for all rows of an update before its first step."""

    baseline: float = 0.0
    values: FloatArray | None = None
    "Of the critic [N]; with it come the next two."
    advantages: FloatArray | None = None
    "[N]"
    returns: FloatArray | None = None
    "[N]"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """How tokens are weighted that another policy drew."""

    cap: float
    "Largest ratio that counts in full."
    level: Level = Level.TOKEN
    rule: Rule = Rule.TRUNCATE
    low: float = 0.0
    "Least ratio that `Rule.MASK` keeps."

    def ratios(self, proximal: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
        """p_proximal / p_behaviour of what each token belongs to, without gradient, 0 where masked; three [B, T] -> [B, T]."""
        with torch.no_grad():
            logs = log_ratio(proximal, behaviour, mask)
            if self.level is not Level.TOKEN:
                logs = sequence_mean(logs, mask) if self.level is Level.GEOMETRIC else logs.sum(-1, keepdim=True)
                logs = logs.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
            return logs.exp() * mask

    def weights(self, proximal: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
        """Each token's weight, without gradient, 0 where masked; three [B, T] -> [B, T]."""
        if self.rule is Rule.NONE:
            return mask.to(proximal.dtype)
        ratios = self.ratios(proximal, behaviour, mask)
        if self.rule is Rule.TRUNCATE:
            return ratios.clamp(max=self.cap)
        return ratios * ((ratios >= self.low) & (ratios <= self.cap))


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over each row's tokens of what is 0 where masked; two [B, T] -> [B, 1], 0 for a row without a token."""
    return values.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def row_weights(weights: Tensor) -> Tensor:
    """Each row's share of a step's mean over rows, from its tokens' shares under `Mean.SEQUENCE`: [B, T] -> [B]."""
    return weights.sum(-1)


def mean_weights(mask: Tensor, mean: Mean, *, num_tokens: int, num_rows: int, constant_length: int = 1) -> Tensor:
    """Each token's weight in a mean over a whole step, of which `mask` [B, T] is one micro-batch; 0 where masked.

    Args:
        mask: Boolean [B, T].
        mean: What counts alike.
        num_tokens: Trained tokens of the step.
        num_rows: Rows of the step that have a trained token.
        constant_length: Tokens that a row counts as under `Mean.CONSTANT`.
    """
    if mean is Mean.TOKEN:
        return mask / max(num_tokens, 1)
    if mean is Mean.CONSTANT:
        return mask / (max(num_rows, 1) * constant_length)
    return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * max(num_rows, 1))


def masked_sum(values: Tensor, mask: Tensor) -> float:
    """Sum of the values where `mask` holds; two [B, T] -> a number."""
    return float(torch.where(mask, values.detach(), values.new_zeros(())).sum())


def _scaled(logits: Tensor, temperatures: Tensor) -> Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide / temperatures.unsqueeze(-1)
