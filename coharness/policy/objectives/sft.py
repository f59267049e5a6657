"""Supervised fine-tuning: raise the log-probability of chosen completions. Driven through `objectives.objectives_of`."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from coharness.policy.objectives.episodes import Episodes
from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch, masked_sum
from coharness.policy.rows import Rows, hash_units, sft_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sft:
    """Cross-entropy on one completion of each group's task."""

    keep_solved: float
    "Share of solved groups that is kept."
    targets: Literal["references", "successes"] = "references"
    "Whether a group's own verified success stands in for the reference where there is one."
    mean: Mean = Mean.TOKEN

    @property
    def needs(self) -> Needs:
        """What it needs of a trainer."""
        return Needs()

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """Prompt and completion of each selected group; see `rows.sft_rows` and `success_rows`."""
        choose = sft_rows if self.targets == "references" else success_rows
        return choose(own, borrowed, keep_solved=self.keep_solved, seed=seed, max_tokens=max_tokens)

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """Nothing is fixed."""
        return None

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


def success_rows(own: pa.Table, borrowed: pa.Table, *, keep_solved: float, seed: int, max_tokens: int) -> Rows:
    """The most confident success of each group, and the reference of each group without one (Zelikman et al., 2022, STaR).

    Args:
        own: Episodes of the member [`EPISODE_SCHEMA`].
        borrowed: Episodes of other members, chosen by the same rule.
        keep_solved: Share of groups without a failure that is kept, chosen by a hash of (seed, item).
        seed: The job's seed.
        max_tokens: Longer rows are dropped and counted.
    """
    episodes = Episodes.of(own, borrowed, max_tokens=max_tokens)
    right = episodes.column("exact") >= 1.0
    taken = ~episodes.any_in_group(~right) & (hash_units(seed, episodes.items) >= keep_solved)  # [K]
    usable = right & episodes.fits
    order = episodes.ranked(np.where(usable, 0.0, 1.0), -episodes.confidence)
    best = order[episodes.place_in_group(order) == 0]  # [K]
    has_success = usable[best]
    has_reference = ~has_success & episodes.reference_fits[episodes.first]
    chosen = ~taken & (has_success | has_reference)
    kept = np.where(has_success, best, episodes.first)[chosen]
    return episodes.rows(
        kept,
        np.ones(len(kept)),
        is_reference=has_reference[chosen],
        temperatures=np.ones(len(kept)),
        counts={
            **episodes.counts(),
            "groups/solved": float((~episodes.any_in_group(~right)).sum()),
            "rows/reference": float((has_reference & ~taken).sum()),
            "rows/borrowed": float((kept >= own.num_rows).sum()),
        },
    )
