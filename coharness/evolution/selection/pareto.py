"""Pareto dominance, fronts and crowding for several objectives, all of them to be maximised.

Under noise a member dominates another only where it is surely better somewhere and surely worse nowhere: differences within
`z` standard errors count as ties, as in epsilon-dominance (Laumanns et al., 2002). With `z` = 0 it is plain dominance.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from coharness.evolution.selection.contract import Score

Flags = npt.NDArray[np.bool_]


def domination(scores: Sequence[Sequence[Score]], z: float = 0.0) -> Flags:
    """Who dominates whom: [i, j] is whether i dominates j.

    Args:
        scores: one row of objectives a member, [members][objectives].
        z: standard errors of a difference that count as a tie.

    Raises:
        ValueError: rows differ in length, or a score is not finite.
    """
    mean, error = _arrays(scores)  # [n, m] each
    difference = mean[:, None] - mean[None]  # [n, n, m]
    margin = z * np.sqrt(error[:, None] ** 2 + error[None] ** 2)
    found: Flags = np.logical_and((difference > margin).any(axis=2), ~(difference < -margin).any(axis=2))
    return found


def fronts(scores: Sequence[Sequence[Score]], z: float = 0.0) -> list[list[int]]:
    """Indices by front, the undominated first (fast non-dominated sort; Deb et al., 2002).

    Where noise makes dominance run in a circle nobody is left undominated; those in it are one front.
    """
    if not scores:
        return []
    dominates = domination(scores, z)
    left = np.ones(len(scores), dtype=bool)
    found: list[list[int]] = []
    while left.any():
        dominated = dominates[left].any(axis=0)
        front = left & ~dominated
        if not front.any():
            front = left.copy()
        found.append([int(i) for i in np.flatnonzero(front)])
        left &= ~front
    return found


def crowding(scores: Sequence[Sequence[Score]]) -> list[float]:
    """Crowding distance of each row within one front: the gap between its neighbours in the front's range, over all objectives.

    The ends of every objective are infinitely far from the crowd (Deb et al., 2002). Objectives without a range add nothing.
    """
    mean, _ = _arrays(scores)
    num, num_objectives = mean.shape
    distance = np.zeros(num)
    for objective in range(num_objectives):
        order = np.argsort(mean[:, objective], kind="stable")
        sorted_ = mean[order, objective]
        width = sorted_[-1] - sorted_[0]
        distance[order[0]] = distance[order[-1]] = np.inf
        if width > 0:
            distance[order[1:-1]] += (sorted_[2:] - sorted_[:-2]) / width
    return [float(d) for d in distance]


def _arrays(scores: Sequence[Sequence[Score]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    lengths = {len(row) for row in scores}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"objectives: members have {sorted(lengths)} of them, expected one number above 0 for all")
    table = np.asarray([[(s.mean, s.error) for s in row] for row in scores], dtype=np.float64)  # [n, m, 2]
    if not np.isfinite(table).all():
        raise ValueError("objectives: a score is not finite; a member without a score cannot be sorted")
    return table[..., 0], table[..., 1]
