"""How many independent judges a panel is worth, from how their errors go together on anchors."""

import numpy as np
import numpy.typing as npt

from coharness.reward.panel.votes import Anchors, check_verdicts


def effective_votes(verdicts: npt.ArrayLike, anchors: Anchors) -> float:
    """n_eff = J / (1 + (J - 1) ρ), ρ the mean pairwise correlation of being right on the anchors (Kish, 1965).

    Six judges at ρ = .415 are worth 1.95. Judges that are always right or always wrong have no correlation and are left out of
    the mean; a negative mean counts as 0, since a few anchors cannot show that judges cancel each other's errors.

    Raises:
        ValueError: fewer than two anchors.
    """
    table = check_verdicts(verdicts)
    if len(anchors) < 2:
        raise ValueError(
            f"got {len(anchors)} anchors, expected at least 2; correlation of errors cannot be seen on fewer"
        )
    return kish(len(table), mean_error_correlation(table, anchors))


def kish(num_judges: int, correlation: float) -> float:
    """J / (1 + (J - 1) ρ), for ρ in [0, 1]."""
    return num_judges / (1.0 + (num_judges - 1) * min(max(correlation, 0.0), 1.0))


def mean_error_correlation(verdicts: npt.ArrayLike, anchors: Anchors) -> float:
    """Mean over pairs of judges of the correlation of being right, ties counting half; 0 where no pair has any spread."""
    table = check_verdicts(verdicts)[:, anchors.items]
    right = np.where(table == 0, 0.5, np.sign(table) == anchors.labels)  # [J, G]
    centred = right - right.mean(axis=1, keepdims=True)
    norms = np.sqrt((centred**2).sum(axis=1))
    varied = norms > 1e-12
    if varied.sum() < 2:
        return 0.0
    unit = centred[varied] / norms[varied, None]
    correlations = unit @ unit.T
    return float(correlations[np.triu_indices(len(unit), 1)].mean())
