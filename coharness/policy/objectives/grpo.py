"""Group-relative policy optimisation, with off-policy correction. Driven through `objectives.objectives_of`.

Three policies appear. *Behaviour* mu drew the tokens, up to `max_staleness` versions ago and in another engine; *proximal*
pi_0 is the member as the update began; pi is being trained. With A the group advantage, a token's loss is

    -w min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_coefficient * k3(pi ‖ base)
    r = pi / pi_0          w = min(pi_0 / mu, tis_cap), without gradient

Keeping pi_0 apart from mu (Hilton et al., 2022) means that staleness costs weight, not gradient: clipping against mu would
silence every token that the last updates moved by more than the clip range. In an update of one step pi_0 is pi and nothing is
clipped.
"""

from dataclasses import dataclass

import pyarrow as pa
import torch

from coharness.policy.objectives.terms import (
    Divergence,
    LossParts,
    Mean,
    TokenBatch,
    divergence,
    log_ratio,
    masked_sum,
    truncated_weights,
)
from coharness.policy.rows import Advantage, Rows, grpo_rows

_NEAR_ONE = (0.9, 1.1)
"""Ratios outside of this are the tails: a mean near 1 can hide a tenth of the tokens out here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo:
    """Clipped surrogate on group advantages (Shao et al., 2024) with truncated importance weights (Yao et al., 2025)."""

    kl_coefficient: float
    tis_cap: float
    clip_low: float = 0.2
    clip_high: float = 0.2
    advantage: Advantage = Advantage.GRPO
    mean: Mean = Mean.TOKEN
    needs_entropy: bool = True
    on_policy: bool = True

    @property
    def needs_reference(self) -> bool:
        """Whether a forward pass of the base is worth its cost."""
        return self.kl_coefficient > 0

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The member's own episodes with their advantages; `borrowed` ones are of other policies and not used."""
        return grpo_rows(own, advantage=self.advantage, max_tokens=max_tokens)

    def loss(self, batch: TokenBatch) -> LossParts:
        """The loss of the module docstring, and how far the three policies are apart.

        `mismatch_kl/mean` is k3 of KL(mu ‖ pi_0), in nats a token; `ratio/*` is about pi_0 / mu, `clip/fraction` about pi / pi_0.
        """
        mask = batch.mask
        weights = truncated_weights(batch.proximal, batch.behaviour, mask, self.tis_cap)
        ratio = log_ratio(batch.logprobs, batch.proximal, mask).exp()
        advantages = batch.advantages.unsqueeze(-1)  # [B, 1]
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        surrogate = torch.minimum(ratio * advantages, clipped * advantages) * weights  # [B, T]
        loss = -(surrogate * batch.weights).sum()

        num_tokens = float(mask.sum())
        mismatch = log_ratio(batch.proximal, batch.behaviour, mask).exp()
        silenced = torch.where(advantages > 0, ratio > 1 + self.clip_high, ratio < 1 - self.clip_low)
        outside = (mismatch < _NEAR_ONE[0]) | (mismatch > _NEAR_ONE[1])
        sums = {
            "loss/policy": (float(loss.detach()), float(batch.weights.sum())),
            "mismatch_kl/mean": (
                masked_sum(divergence(Divergence.K3, batch.behaviour, batch.proximal, mask), mask),
                num_tokens,
            ),
            "ratio/mean": (masked_sum(mismatch, mask), num_tokens),
            "ratio/outside": (float((outside & mask).sum()), num_tokens),
            "ratio/capped": (float(((mismatch > self.tis_cap) & mask).sum()), num_tokens),
            "clip/fraction": (float((silenced & mask).sum()), num_tokens),
        }
        if batch.reference is not None:
            distance = divergence(Divergence.K3, batch.logprobs, batch.reference, mask)
            loss = loss + self.kl_coefficient * (distance * batch.weights).sum()
            sums["kl/base"] = (masked_sum(distance, mask), num_tokens)
        if batch.entropy is not None:
            sums["entropy/mean"] = (masked_sum(batch.entropy, mask), num_tokens)
        largest = float(torch.where(mask, mismatch, mismatch.new_zeros(())).amax()) if mask.numel() else 0.0
        return LossParts(loss=loss, sums=sums, peaks={"ratio/max": largest})
