"""A judge by pairs: of two answers, the read-out of the better is to exceed that of the worse. Rows come in pairs, better first.

-t log sigmoid(d - m) - (1 - t) log sigmoid(-d - m), d the difference of the read-outs (Bradley and Terry, 1952): t is 1 for a
preference and 1/2 for a tie, and m, the margin asked for, grows with how much better the better one is. A tie asks for none.
"""

from dataclasses import dataclass

import pyarrow as pa
import torch
import torch.nn.functional as F

from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch, row_weights
from coharness.policy.objectives.verdict_rows import check_one_verdict, readout, verdict_pairs
from coharness.policy.rows import SPREAD, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BradleyTerry:
    """Preference between two answers by a scalar read-out of each."""

    margin: float = 0.0
    "Log-odds that are asked for where one answer is worth 1 and the other 0; in proportion between."
    mean: Mean = Mean.SEQUENCE

    @property
    def needs(self) -> Needs:
        """Nothing besides the log-probabilities."""
        return Needs()

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The pairs of `own`; `borrowed` is not used."""
        return check_one_verdict(verdict_pairs(own, max_tokens=max_tokens))

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing is fixed."""
        return None

    def loss(self, batch: TokenBatch) -> LossParts:
        """Mean over pairs. `judge/accuracy` is the share of preferences in the right order, ties left out."""
        read = readout(batch.logprobs, batch.mask)  # [B]
        difference = read[0::2] - read[1::2]  # [B / 2]
        gap = (batch.advantages[0::2] - batch.advantages[1::2]).to(difference.dtype)
        is_tie = gap <= SPREAD
        margin = torch.where(is_tie, 0.0, self.margin * gap)
        target = torch.where(is_tie, 0.5, 1.0).to(difference.dtype)
        losses = -target * F.logsigmoid(difference - margin) - (1 - target) * F.logsigmoid(-difference - margin)
        share = row_weights(batch.weights)
        decided = float((~is_tie).sum())
        num_pairs = float(len(difference))
        sums = {
            "loss/judge": (float(losses.detach().sum()), num_pairs),
            "judge/accuracy": (float(((difference > 0) & ~is_tie).sum()), decided),
            "judge/margin": (float(difference.detach()[~is_tie].sum()), decided),
        }
        return LossParts(
            loss=(losses * (share[0::2] + share[1::2])).sum(),
            sums={name: value for name, value in sums.items() if value[1]},
        )
