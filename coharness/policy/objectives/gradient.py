"""What all policy gradients share: the correction for stale tokens, the tether to the base, the price of certainty, the metrics.

Three policies appear. *Behaviour* mu drew the tokens, up to `max_staleness` versions ago and in another engine; *proximal*
pi_0 is the member as the update began; pi is being trained. With a token's surrogate s(pi / pi_0, A), in which the objectives
differ, its loss is

    -w s + kl_coefficient * D(pi ‖ base) - entropy_coefficient * H(pi)          w = importance of pi_0 / mu, without gradient

Keeping pi_0 apart from mu (Hilton et al., 2022) means that staleness costs weight, not gradient: clipping against mu would
silence every token that the last updates moved by more than the clip range. In an update of one step pi_0 is pi and nothing is
clipped.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from coharness.policy.objectives.terms import (
    Divergence,
    Importance,
    LossParts,
    Needs,
    Rule,
    TokenBatch,
    divergence,
    log_ratio,
    masked_sum,
)

_NEAR_ONE = (0.9, 1.1)
"""Ratios outside of this are the tails: a mean near 1 can hide a tenth of the tokens out here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTerms:
    """The terms of a policy gradient besides its surrogate."""

    importance: Importance
    kl_coefficient: float = 0.0
    kl_estimator: Divergence = Divergence.K3
    entropy_coefficient: float = 0.0

    @property
    def needs(self) -> Needs:
        """What all policy gradients need of a trainer; a pass of the base only where it is worth its cost."""
        return Needs(
            reference=self.kl_coefficient > 0,
            proximal=True,
            entropy=True,
            entropy_gradient=self.entropy_coefficient > 0,
        )

    def loss(self, batch: TokenBatch, surrogate: Tensor, silenced: Tensor) -> LossParts:
        """The loss of the module docstring, and how far the three policies are apart.

        `mismatch_kl/mean` is k3 of KL(mu ‖ pi_0), in nats a token; `ratio/*` is about pi_0 / mu, `clip/fraction` about pi / pi_0.

        Args:
            batch: The micro-batch.
            surrogate: What is to be raised, not yet corrected [B, T].
            silenced: Tokens whose gradient was clipped away [B, T].
        """
        mask = batch.mask
        weights = self.importance.weights(batch.proximal, batch.behaviour, mask)
        loss = -(surrogate * weights * batch.weights).sum()
        num_tokens = float(mask.sum())
        mismatch = log_ratio(batch.proximal, batch.behaviour, mask).exp()
        outside = (mismatch < _NEAR_ONE[0]) | (mismatch > _NEAR_ONE[1])
        sums = {
            "loss/policy": (float(loss.detach()), float(batch.weights.sum())),
            "mismatch_kl/mean": (
                masked_sum(divergence(Divergence.K3, batch.behaviour, batch.proximal, mask), mask),
                num_tokens,
            ),
            "ratio/mean": (masked_sum(mismatch, mask), num_tokens),
            "ratio/outside": (float((outside & mask).sum()), num_tokens),
            "ratio/capped": (float(((mismatch > self.importance.cap) & mask).sum()), num_tokens),
            "clip/fraction": (float((silenced & mask).sum()), num_tokens),
        }
        if self.importance.rule is Rule.MASK:
            sums["ratio/masked"] = (float(((weights == 0) & mask).sum()), num_tokens)
        if batch.reference is not None:
            distance = divergence(self.kl_estimator, batch.logprobs, batch.reference, mask)
            loss = loss + self.kl_coefficient * (distance * batch.weights).sum()
            sums["kl/base"] = (masked_sum(distance, mask), num_tokens)
        if batch.entropy is not None:
            sums["entropy/mean"] = (masked_sum(batch.entropy, mask), num_tokens)
            if self.entropy_coefficient > 0:
                kept = torch.where(mask, batch.entropy, batch.entropy.new_zeros(()))
                loss = loss - self.entropy_coefficient * (kept * batch.weights).sum()
        largest = float(torch.where(mask, mismatch, mismatch.new_zeros(())).amax()) if mask.numel() else 0.0
        return LossParts(loss=loss, sums=sums, peaks={"ratio/max": largest})


def clipped_surrogate(ratio: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """min(r A, clip(r, 1 - low, 1 + high) A), and where its gradient stops (Schulman et al., 2017); [B, T or 1] each."""
    clipped = ratio.clamp(1 - low, 1 + high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    return surrogate, torch.where(advantages > 0, ratio > 1 + high, ratio < 1 - low)
