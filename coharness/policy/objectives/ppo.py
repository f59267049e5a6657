"""Proximal policy optimisation with a critic on the policy's own trunk. Driven through `objectives.objectives_of`.

The critic says at each position what score the episode will end with; advantages come from generalised advantage estimation over
the tokens that the policy wrote (what the harness writes between two turns is no action and is skipped). Values, advantages and
returns are fixed when the update begins. An episode needs no others of its task, so a group may be of one.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch

from coharness.policy.objectives.episodes import Episodes
from coharness.policy.objectives.gradient import GradientTerms, clipped_surrogate
from coharness.policy.objectives.terms import (
    LossParts,
    Mean,
    Needs,
    Prepared,
    Snapshot,
    TokenBatch,
    log_ratio,
    masked_sum,
)
from coharness.policy.rows import BoolArray, FloatArray, IntArray, Rows

_WHITENING = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ppo:
    """Clipped surrogate and clipped values (Schulman et al., 2017) on advantages by GAE (Schulman et al., 2016)."""

    terms: GradientTerms
    critic_coefficient: float
    value_clip: float
    discount: float
    gae_lambda: float
    clip_low: float = 0.2
    clip_high: float = 0.2
    mean: Mean = Mean.TOKEN

    @property
    def needs(self) -> Needs:
        """What it needs of a trainer."""
        return replace(self.terms.needs, critic=True)

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The member's own episodes with their scores; `borrowed` ones are of other policies and not used."""
        episodes = Episodes.of(own, max_tokens=max_tokens)
        episodes.check_sampled()
        kept = np.flatnonzero(episodes.fits)
        return episodes.rows(kept, episodes.column("score")[kept], counts=episodes.counts())

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Advantages, of mean 0 and variance 1 over the update's tokens, and the returns that values are drawn towards."""
        values = snapshot.values()
        advantages = gae(
            values, rows.loss_mask, rows.offsets, rows.advantages, discount=self.discount, gae_lambda=self.gae_lambda
        )
        returns = (advantages + values).astype(np.float32)
        learned = advantages[rows.loss_mask]
        if len(learned):
            advantages = (advantages - learned.mean()) / np.sqrt(learned.var() + _WHITENING)
        return Prepared(values=values, advantages=advantages.astype(np.float32), returns=returns)

    def loss(self, batch: TokenBatch) -> LossParts:
        """The policy's loss, see `gradient`, and half the squared error of the critic, which may move by `value_clip` alone."""
        assert batch.targets is not None, "values of the critic were not asked for"
        assert batch.values is not None, "values of the critic were not asked for"
        ratio = log_ratio(batch.logprobs, batch.proximal, batch.mask).exp()
        surrogate, silenced = clipped_surrogate(ratio, batch.targets.advantages, self.clip_low, self.clip_high)
        parts = self.terms.loss(batch, surrogate, silenced)
        zero = batch.values.new_zeros(())
        values, old, returns = (
            torch.where(batch.mask, t, zero) for t in (batch.values, batch.targets.values, batch.targets.returns)
        )
        near = old + (values - old).clamp(-self.value_clip, self.value_clip)
        error = torch.maximum((values - returns).square(), (near - returns).square()) / 2  # [B, T]
        num_tokens = float(batch.mask.sum())
        sums = {
            **parts.sums,
            "loss/critic": (masked_sum(error, batch.mask), num_tokens),
            "critic/value": (masked_sum(values, batch.mask), num_tokens),
            "critic/return": (masked_sum(returns, batch.mask), num_tokens),
        }
        return LossParts(
            loss=parts.loss + self.critic_coefficient * (error * batch.weights).sum(), sums=sums, peaks=parts.peaks
        )


def gae(
    values: FloatArray,
    mask: BoolArray,
    offsets: IntArray,
    rewards: FloatArray,
    *,
    discount: float,
    gae_lambda: float,
) -> FloatArray:
    """Generalised advantage estimates (Schulman et al., 2016) of ragged rows whose reward comes with their last action.

    Args:
        values: What each action's state is worth; read where `mask` holds [N].
        mask: Which tokens are actions [N].
        offsets: Row r is `[offsets[r], offsets[r + 1])` [R + 1].
        rewards: Of each row [R].
        discount: Of a step, between two actions.
        gae_lambda: 0 trusts the critic after one step, 1 not at all.

    Returns:
        Advantages, 0 where no action is [N].
    """
    actions = np.flatnonzero(mask)
    row = np.searchsorted(offsets, actions, side="right") - 1  # [M]
    is_last = np.append(row[1:] != row[:-1], True)[: len(row)]
    here = values[actions].astype(np.float64)
    following = np.where(is_last, 0.0, np.append(here[1:], 0.0))
    errors = np.where(is_last, rewards[row], 0.0) + discount * following - here
    # Counted from the end of its row, so that all rows take the k-th step back at once.
    ends = np.flatnonzero(is_last)
    back = ends[np.searchsorted(ends, np.arange(len(actions)))] - np.arange(len(actions))
    order = np.argsort(back, kind="stable")
    starts = np.searchsorted(back[order], np.arange(int(back.max(initial=-1)) + 2))
    found = errors.copy()
    for step in range(1, len(starts) - 1):
        at = order[starts[step] : starts[step + 1]]
        found[at] += discount * gae_lambda * found[at + 1]
    flat = np.zeros(len(mask), dtype=np.float32)
    flat[actions] = found
    return flat
