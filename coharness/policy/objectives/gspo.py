"""Group sequence policy optimisation: an answer is clipped as a whole. Driven through `objectives.objectives_of`."""

from dataclasses import dataclass

import pyarrow as pa

from coharness.policy.objectives.gradient import GradientTerms, clipped_surrogate
from coharness.policy.objectives.terms import (
    LossParts,
    Mean,
    Needs,
    Prepared,
    Snapshot,
    TokenBatch,
    log_ratio,
    sequence_mean,
)
from coharness.policy.rows import Advantage, Rows, grpo_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Gspo:
    """Clipped surrogate on the geometric mean of an answer's ratios (Zheng et al., 2025)."""

    terms: GradientTerms
    clip_low: float = 3e-4
    clip_high: float = 4e-4
    "Far smaller than those of GRPO: a mean over tokens moves less than a token."
    mean: Mean = Mean.SEQUENCE

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
        """The loss of one micro-batch; see `gradient`. All tokens of an answer share its ratio."""
        ratio = sequence_mean(log_ratio(batch.logprobs, batch.proximal, batch.mask), batch.mask).exp()  # [B, 1]
        surrogate, silenced = clipped_surrogate(ratio, batch.advantages.unsqueeze(-1), self.clip_low, self.clip_high)
        return self.terms.loss(batch, surrogate, silenced)
