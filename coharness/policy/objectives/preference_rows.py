"""Which answers are held against which: pairs of a group, references against confident mistakes, hard positives and negatives.

An answer's confidence is the mean log-probability it was written with. Among equally bad answers the most confident is the one to
unlearn; among equally good ones `contrast_rows` takes the least confident, which has most to gain. Rows are scored at temperature
1, as they will be served. Driven by the objectives `dpo` and `kto`.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from coharness.policy.objectives.episodes import Episodes
from coharness.policy.rows import SPREAD, Rows

FailedGroups = Literal["skip", "reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRule:
    """How pairs are made."""

    column: str = "score"
    "Part of the score that is compared."
    failed_groups: FailedGroups = "skip"
    "Whether the reference of a group without a success stands against its most confident mistake."


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastRule:
    """How right and wrong answers are picked."""

    per_task: int
    "Most right ones and most wrong ones of a group."
    failed_groups: FailedGroups = "skip"
    "Whether the reference of a group without a success is a right answer."


def pair_rows(own: pa.Table, borrowed: pa.Table, rule: PairRule, *, max_tokens: int) -> Rows:
    """One pair a group, chosen row first: its best against its worst answer, the most confident of each; ties give no pair.

    Args:
        own: Episodes of the member [`EPISODE_SCHEMA`].
        borrowed: Episodes of other members, picked by the same rule.
        rule: How pairs are made.
        max_tokens: Longer rows are in no pair.
    """
    episodes = Episodes.of(own, borrowed, max_tokens=max_tokens)
    values = episodes.column(rule.column)
    usable = episodes.fits
    # What does not fit goes behind everything at either end.
    last = np.where(usable, 0.0, 1.0)
    best = episodes.ranked(last, -values, -episodes.confidence)
    worst = episodes.ranked(last, values, -episodes.confidence)
    top, bottom = best[episodes.place_in_group(best) == 0], worst[episodes.place_in_group(worst) == 0]  # [K]
    both = usable[top] & usable[bottom]
    paired = both & (values[top] - values[bottom] > SPREAD)
    num_ties = int((both & ~paired).sum())
    is_reference = np.zeros(len(top), dtype=bool)
    if rule.failed_groups == "reference":
        failed = ~episodes.any_in_group(episodes.column("exact") >= 1.0)
        sure = episodes.ranked(last, -episodes.confidence)
        mistake = sure[episodes.place_in_group(sure) == 0]
        is_reference = failed & usable[mistake] & episodes.reference_fits[episodes.first]
        top = np.where(is_reference, episodes.first, top)
        bottom = np.where(is_reference, mistake, bottom)
        paired |= is_reference
    kept = np.stack([top[paired], bottom[paired]], axis=1).reshape(-1)  # [2 P]
    by_reference = np.stack([is_reference[paired], np.zeros(int(paired.sum()), dtype=bool)], axis=1).reshape(-1)
    return episodes.rows(
        kept,
        np.tile([1.0, -1.0], len(kept) // 2),
        is_reference=by_reference,
        temperatures=np.ones(len(kept)),
        counts={
            **episodes.counts(),
            "groups/tied": float(num_ties),
            "pairs/borrowed": float((bottom[paired] >= own.num_rows).sum()),
            "pairs/reference": float(is_reference.sum()),
        },
        unit=2,
    )


def contrast_rows(own: pa.Table, borrowed: pa.Table, rule: ContrastRule, *, max_tokens: int) -> Rows:
    """Right answers, the least confident of each group, and wrong ones, the most confident; advantages are 1 and -1.

    Args:
        own: Episodes of the member [`EPISODE_SCHEMA`].
        borrowed: Episodes of other members, picked by the same rule.
        rule: How many of a group.
        max_tokens: Longer rows are dropped and counted.
    """
    episodes = Episodes.of(own, borrowed, max_tokens=max_tokens)
    solved = episodes.column("exact") >= 1.0
    order = episodes.ranked(
        np.where(episodes.fits, 0.0, 1.0),
        np.where(solved, 0.0, 1.0),
        np.where(solved, episodes.confidence, -episodes.confidence),
    )
    order = order[episodes.fits[order]]
    right, wrong = order[solved[order]], order[~solved[order]]
    right = right[episodes.place_in_group(right) < rule.per_task]
    wrong = wrong[episodes.place_in_group(wrong) < rule.per_task]
    references = np.zeros(0, dtype=np.int64)
    if rule.failed_groups == "reference":
        failed = ~episodes.any_in_group(solved)
        references = episodes.first[failed & episodes.reference_fits[episodes.first]]
    kept = np.concatenate([right, references, wrong])
    num_right = len(right) + len(references)
    is_reference = np.zeros(len(kept), dtype=bool)
    is_reference[len(right) : num_right] = True
    return episodes.rows(
        kept,
        np.where(np.arange(len(kept)) < num_right, 1.0, -1.0),
        is_reference=is_reference,
        temperatures=np.ones(len(kept)),
        counts={
            **episodes.counts(),
            "rows/right": float(num_right),
            "rows/wrong": float(len(wrong)),
            "rows/reference": float(len(references)),
            "rows/borrowed": float((kept >= own.num_rows).sum()),
        },
    )
