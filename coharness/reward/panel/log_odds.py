"""The anchored log-odds vote, the default of a panel: each judge counts by what it got right on anchors, and none by less.

r = (c + a) / (G + 2a) of G anchors with c right; weight ln(r / (1 - r)), never negative: a judge that is worse than a coin on a
few anchors is left out, not inverted. Judges that err together are not J witnesses, so all but the most reliable are discounted
by n_eff / J. Discounting the whole sum would change no decision; discounting what stands against the best judge keeps a few
anchors' luck from letting a weak cohort outvote it (on six recorded judges of the LLMBar pairs and 40 anchors, the plain sum
fell more than two points below the best judge in 1 of 100 draws, this one in none of 200).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.reward.panel.effective import effective_votes
from coharness.reward.panel.votes import Anchors, Verdicts, check_verdicts

FEW_ANCHORS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredVote:
    """A fitted vote."""

    reliabilities: npt.NDArray[np.float64]
    "Shrunk share of right verdicts of each judge on the anchors [J]."
    weights: npt.NDArray[np.float64]
    "Log odds that a verdict of each judge is worth [J], 0 or more, discounts included."
    effective: float
    "Effective number of votes."
    num_anchors: int

    def log_odds(self, verdicts: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Log odds that the first candidate is better [I]; 0 where no judge that counts has a verdict."""
        table = check_verdicts(verdicts)
        if len(table) != len(self.weights):
            raise ValueError(f"the vote was fitted on {len(self.weights)} judges, got verdicts of {len(table)}")
        return np.asarray(self.weights @ table)

    def probability(self, verdicts: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The same as a probability [I]."""
        return np.asarray(1.0 / (1.0 + np.exp(-self.log_odds(verdicts))))


def fit_vote(verdicts: npt.ArrayLike, anchors: Anchors, families: Sequence[str] | None = None) -> AnchoredVote:
    """Fit the vote on anchors.

    Args:
        verdicts: [J, I], both orders of a pair already made one (`votes.symmetrised`).
        anchors: at least 2.
        families: model family of each judge; judges of one family share one vote between them.

    Raises:
        ValueError: no anchors, or families that do not match.
    """
    table = check_verdicts(verdicts)
    if len(anchors) < 2:
        raise ValueError(
            f"a vote was asked for with {len(anchors)} anchors; settle at least 2 items, better 40: without them a biased cohort "
            "cannot be told from the truth"
        )
    reliabilities = anchored_reliabilities(table, anchors)
    odds = np.log(reliabilities / (1.0 - reliabilities))
    weights = np.maximum(odds, 0.0) / _family_sizes(families, table)
    effective = effective_votes(table, anchors)
    best = int(np.argmax(weights))
    discount = np.full(len(table), effective / len(table))
    discount[best] = 1.0
    return AnchoredVote(
        reliabilities=reliabilities,
        weights=weights * discount,
        effective=effective,
        num_anchors=len(anchors),
    )


def anchored_reliabilities(verdicts: npt.ArrayLike, anchors: Anchors) -> npt.NDArray[np.float64]:
    """Shrunk share of right verdicts [J], in (0, 1); missing verdicts and ties count half.

    The shrinkage towards a coin is 4 pseudo-verdicts a side with fewer than 20 anchors, 1 with more.
    """
    if not len(anchors):
        raise ValueError("got no anchors; a reliability without anchors is a judge's agreement with its own cohort")
    table = check_verdicts(verdicts)[:, anchors.items]
    right = np.where(table == 0, 0.5, np.sign(table) == anchors.labels).sum(axis=1)
    shrink = 4.0 if len(anchors) < FEW_ANCHORS else 1.0
    return np.asarray((right + shrink) / (len(anchors) + 2 * shrink))


def _family_sizes(families: Sequence[str] | None, table: Verdicts) -> npt.NDArray[np.float64]:
    if families is None:
        return np.ones(len(table))
    if len(families) != len(table):
        raise ValueError(f"got {len(families)} families for {len(table)} judges, expected one each")
    return np.asarray([math.fsum(f == other for other in families) for f in families])
