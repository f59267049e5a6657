"""Supervised fine-tuning: raise the log-probability of reference completions. Driven through `objectives.objectives_of`."""

from dataclasses import dataclass

import pyarrow as pa

from coharness.policy.objectives.terms import LossParts, Mean, TokenBatch, masked_sum
from coharness.policy.rows import Rows, sft_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sft:
    """Cross-entropy on the reference of each group's task."""

    keep_solved: float
    "Share of solved groups whose reference is kept."
    mean: Mean = Mean.TOKEN
    needs_reference: bool = False
    needs_entropy: bool = False
    on_policy: bool = False

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """Prompt and reference of each selected group; see `rows.sft_rows`."""
        return sft_rows(own, borrowed, keep_solved=self.keep_solved, seed=seed, max_tokens=max_tokens)

    def loss(self, batch: TokenBatch) -> LossParts:
        """Weighted negative log-probability of the reference tokens.

        `loss/sft` is the mean over trained tokens, in nats.
        """
        # where, not a product: a masked position may hold anything.
        kept = batch.logprobs.where(batch.mask, batch.logprobs.new_zeros(()))
        num_tokens = float(batch.mask.sum())
        return LossParts(
            loss=-(kept * batch.weights).sum(),
            sums={"loss/sft": (-masked_sum(batch.logprobs, batch.mask), num_tokens)},
        )
