"""Clipped importance weights on a plain policy gradient. Driven through `objectives.objectives_of`."""

from dataclasses import dataclass

import pyarrow as pa
import torch

from coharness.policy.objectives.gradient import GradientTerms
from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch, log_ratio
from coharness.policy.rows import Advantage, Rows, grpo_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Cispo:
    """sg(clip(r)) A log pi: the ratio is clipped, the token's gradient never is (MiniMax, 2025, M1)."""

    terms: GradientTerms
    clip_low: float = 1.0
    "1 leaves small ratios as they are."
    clip_high: float = 4.0
    mean: Mean = Mean.TOKEN

    @property
    def needs(self) -> Needs:
        """What it needs of a trainer."""
        return self.terms.needs

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The member's own episodes with their advantages; `borrowed` ones are of other policies and not used."""
        return grpo_rows(own, advantage=Advantage.GRPO, max_tokens=max_tokens)

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing: advantages come with the rows."""
        return None

    def loss(self, batch: TokenBatch) -> LossParts:
        """The loss of one micro-batch; see `gradient`. Its value is no distance from anything, its gradient is what counts."""
        with torch.no_grad():
            ratio = log_ratio(batch.logprobs, batch.proximal, batch.mask).exp()
            clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        logprobs = torch.where(batch.mask, batch.logprobs, batch.logprobs.new_zeros(()))
        surrogate = clipped * batch.advantages.unsqueeze(-1) * logprobs
        return self.terms.loss(batch, surrogate, ratio != clipped)
