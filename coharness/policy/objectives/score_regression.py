"""A judge by scores: the verdict's probability is to be the score in [0, 1] that an answer was given."""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch, row_weights
from coharness.policy.objectives.verdict_rows import check_one_verdict, readout, verdict_rows
from coharness.policy.rows import Rows


class Distance(StrEnum):
    """How far a probability is from a score."""

    CROSS_ENTROPY = "cross_entropy"
    "-y log p - (1 - y) log(1 - p): proper, least at p = y, and its gradient in log-odds, p - y, never vanishes far from it."
    SQUARED = "squared"
    "(p - y)² (Brier, 1950)."
    HUBER = "huber"
    "The squared one near y, linear beyond .25, so that a few wrong scores pull less."


HUBER_DELTA = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRegression:
    """Regression of a score on a scalar read-out."""

    distance: Distance = Distance.CROSS_ENTROPY
    mean: Mean = Mean.SEQUENCE

    @property
    def needs(self) -> Needs:
        """Nothing besides the log-probabilities."""
        return Needs()

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """All episodes of `own`; `borrowed` is not used."""
        return check_one_verdict(verdict_rows(own, max_tokens=max_tokens))

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing is fixed."""
        return None

    def loss(self, batch: TokenBatch) -> LossParts:
        """Mean over rows. `judge/error` is the mean absolute difference of probability and score."""
        read = readout(batch.logprobs, batch.mask)  # [B]
        target = batch.advantages.to(read.dtype)
        losses = self._losses(read, target)
        num_rows = float(len(read))
        error = (torch.sigmoid(read.detach()) - target).abs()
        return LossParts(
            loss=(losses * row_weights(batch.weights)).sum(),
            sums={
                "loss/judge": (float(losses.detach().sum()), num_rows),
                "judge/error": (float(error.sum()), num_rows),
            },
        )

    def _losses(self, read: Tensor, target: Tensor) -> Tensor:
        match self.distance:
            case Distance.CROSS_ENTROPY:
                return F.binary_cross_entropy_with_logits(read, target, reduction="none")
            case Distance.SQUARED:
                return (torch.sigmoid(read) - target).square()
            case Distance.HUBER:
                return F.huber_loss(torch.sigmoid(read), target, reduction="none", delta=HUBER_DELTA)
