"""Direct preference optimisation: of two answers to one task, the better is made likelier than the worse. Rows come in pairs,
the chosen one first. Driven through `objectives.objectives_of`.
"""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import torch.nn.functional as F
from torch import Tensor

from coharness.policy.objectives.preference_rows import PairRule, pair_rows
from coharness.policy.objectives.terms import (
    LossParts,
    Mean,
    Needs,
    Prepared,
    Snapshot,
    TokenBatch,
    log_ratio,
    row_weights,
    sequence_mean,
)
from coharness.policy.rows import Rows


class Link(StrEnum):
    """How a pair's margin becomes a loss."""

    SIGMOID = "sigmoid"
    "-log sigmoid(beta margin), the margin over whole answers (Rafailov et al., 2023)."
    IPO = "ipo"
    "(margin - 1 / (2 beta))², the margin a token, so that no pair pulls for ever (Azar et al., 2023)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Dpo:
    """Preference between two answers by their log-ratios to the base."""

    beta: float
    link: Link
    pairs: PairRule
    mean: Mean = Mean.SEQUENCE

    @property
    def needs(self) -> Needs:
        """What it needs of a trainer."""
        return Needs(reference=True)

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """One pair a group, of the member's own groups and of borrowed ones; see `pair_rows`."""
        return pair_rows(own, borrowed, self.pairs, max_tokens=max_tokens)

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing is fixed."""
        return None

    def loss(self, batch: TokenBatch) -> LossParts:
        """Mean over pairs. `preference/accuracy` is the share of pairs in the right order, `preference/*` are nats an answer."""
        assert batch.reference is not None, "the base's log-probabilities were not asked for"
        ratios = log_ratio(batch.logprobs, batch.reference, batch.mask)  # [B, T]
        total = ratios.sum(-1) if self.link is Link.SIGMOID else sequence_mean(ratios, batch.mask).squeeze(-1)
        chosen, rejected = total[0::2], total[1::2]  # [B / 2]
        margin = chosen - rejected
        losses = self._losses(margin)
        share = row_weights(batch.weights)
        loss = (losses * (share[0::2] + share[1::2])).sum()
        num_pairs = float(len(margin))
        sums = {
            "loss/preference": (float(losses.detach().sum()), num_pairs),
            "preference/accuracy": (float((margin > 0).sum()), num_pairs),
            "preference/margin": (float(margin.detach().sum()), num_pairs),
            "preference/chosen": (float(chosen.detach().sum()), num_pairs),
            "preference/rejected": (float(rejected.detach().sum()), num_pairs),
        }
        return LossParts(loss=loss, sums=sums)

    def _losses(self, margin: Tensor) -> Tensor:
        if self.link is Link.SIGMOID:
            return -F.logsigmoid(self.beta * margin)
        return (margin - 1 / (2 * self.beta)).square()
