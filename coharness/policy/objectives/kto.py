"""Kahneman-Tversky optimisation: right answers are made likelier and wrong ones less likely, each for itself, so that a task
needs no pair. Driven through `objectives.objectives_of`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from coharness.policy.objectives.preference_rows import ContrastRule, contrast_rows
from coharness.policy.objectives.terms import (
    LossParts,
    Mean,
    Needs,
    Prepared,
    Snapshot,
    TokenBatch,
    log_ratio,
    row_weights,
)
from coharness.policy.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Kto:
    """lambda (1 - sigmoid(±beta (log-ratio - z))), + for right and - for wrong answers (Ethayarajh et al., 2024).

    z is the log-ratio that an answer of the update has on average when it begins, 0 at least: what all answers gained alike is no
    merit of the right ones. (The paper takes the mean over answers to other prompts, since its answers are not the policy's own.)
    """

    beta: float
    desirable_weight: float
    undesirable_weight: float
    contrast: ContrastRule
    mean: Mean = Mean.SEQUENCE

    @property
    def needs(self) -> Needs:
        """What it needs of a trainer."""
        return Needs(reference=True)

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """Right and wrong answers of the member's own groups and of borrowed ones; see `contrast_rows`."""
        return contrast_rows(own, borrowed, self.contrast, max_tokens=max_tokens)

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """The baseline z."""
        if not rows.num_rows:
            return None
        ratios = np.where(rows.loss_mask, snapshot.logprobs() - snapshot.reference(), 0.0)
        return Prepared(baseline=max(float(ratios.sum()) / rows.num_rows, 0.0))

    def loss(self, batch: TokenBatch) -> LossParts:
        """Mean over answers. `preference/right` and `preference/wrong` are their log-ratios to the base, in nats an answer."""
        assert batch.reference is not None, "the base's log-probabilities were not asked for"
        total = log_ratio(batch.logprobs, batch.reference, batch.mask).sum(-1)  # [B]
        is_right = batch.advantages > 0
        sign = torch.where(is_right, 1.0, -1.0).to(total.dtype)
        price = torch.where(is_right, self.desirable_weight, self.undesirable_weight).to(total.dtype)
        losses = price * (1 - torch.sigmoid(sign * self.beta * (total - batch.baseline)))
        counted = batch.mask.any(-1)
        held = total.detach()
        right, wrong = counted & is_right, counted & ~is_right
        sums = {
            "loss/contrast": (float(losses.detach()[counted].sum()), float(counted.sum())),
            "preference/right": (float(held[right].sum()), float(right.sum())),
            "preference/wrong": (float(held[wrong].sum()), float(wrong.sum())),
            "preference/baseline": (batch.baseline * float(counted.sum()), float(counted.sum())),
        }
        return LossParts(loss=(losses * row_weights(batch.weights)).sum(), sums=sums)
