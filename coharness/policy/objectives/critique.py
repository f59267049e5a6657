"""A judge by words: it learns to write a reason and then its verdict, the reason at a smaller weight.

A reason is many tokens of which few decide anything; counted alike they would be all that is learned.
"""

from dataclasses import dataclass

import pyarrow as pa
import torch

from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch, row_weights
from coharness.policy.objectives.verdict_rows import verdict_rows
from coharness.policy.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """Cross-entropy on reasons and verdicts."""

    verdict_tokens: int
    "Learned tokens at a row's end that are its verdict, the end token included; those before are its reason."
    reason_weight: float = 0.2
    "Weight of a reason's mean loss a token beside that of its verdict."
    mean: Mean = Mean.SEQUENCE

    @property
    def needs(self) -> Needs:
        """Nothing besides the log-probabilities."""
        return Needs()

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """All episodes of `own`; `borrowed` is not used."""
        return verdict_rows(own, max_tokens=max_tokens)

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing is fixed."""
        return None

    def loss(self, batch: TokenBatch) -> LossParts:
        """Mean over rows of the verdict's mean loss a token plus the weighted one of the reason."""
        nll = -torch.where(batch.mask, batch.logprobs, batch.logprobs.new_zeros(()))  # [B, T]
        from_end = batch.mask.flip(-1).cumsum(-1).flip(-1)  # learned tokens from each position on
        is_verdict = batch.mask & (from_end <= self.verdict_tokens)
        is_reason = batch.mask & ~is_verdict
        verdict = (nll * is_verdict).sum(-1) / is_verdict.sum(-1).clamp(min=1)  # [B]
        reason = (nll * is_reason).sum(-1) / is_reason.sum(-1).clamp(min=1)
        losses = verdict + self.reason_weight * reason
        num_reasons = float(is_reason.any(-1).sum())
        sums = {"loss/judge": (float(verdict.detach().sum()), float(len(verdict)))}
        if num_reasons:
            sums["loss/reason"] = (float(reason.detach().sum()), num_reasons)
        return LossParts(loss=(losses * row_weights(batch.weights)).sum(), sums=sums)
