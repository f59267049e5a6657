"""Group-relative policy optimisation: each token's own ratio is clipped. Driven through `objectives.objectives_of`.

The variants that go by other names differ in settings alone. GRPO (Shao et al., 2024) divides advantages by the group's
deviation; Dr. GRPO (Liu et al., 2025) divides neither by that nor by a row's length; DAPO (Yu et al., 2025) clips further above
than below and counts tokens alike. Groups without spread, which DAPO leaves out, are never trained on here.
"""

from dataclasses import dataclass

import pyarrow as pa

from coharness.policy.objectives.gradient import GradientTerms, clipped_surrogate
from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch, log_ratio
from coharness.policy.rows import Advantage, Rows, grpo_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo:
    """Clipped surrogate on group advantages (Shao et al., 2024) with truncated importance weights (Yao et al., 2025)."""

    terms: GradientTerms
    clip_low: float = 0.2
    clip_high: float = 0.2
    advantage: Advantage = Advantage.GRPO
    mean: Mean = Mean.TOKEN

    @property
    def needs(self) -> Needs:
        """What it needs of a trainer."""
        return self.terms.needs

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The member's own episodes with their advantages; `borrowed` ones are of other policies and not used."""
        return grpo_rows(own, advantage=self.advantage, max_tokens=max_tokens)

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing: advantages come with the rows."""
        return None

    def loss(self, batch: TokenBatch) -> LossParts:
        """The loss of one micro-batch; see `gradient`."""
        ratio = log_ratio(batch.logprobs, batch.proximal, batch.mask).exp()
        surrogate, silenced = clipped_surrogate(ratio, batch.advantages.unsqueeze(-1), self.clip_low, self.clip_high)
        return self.terms.loss(batch, surrogate, silenced)
