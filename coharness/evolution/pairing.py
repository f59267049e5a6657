"""Pairing: which harness a member works in next, where its evidence is thinnest or, for a share, uniformly."""

from collections.abc import Sequence

import numpy as np


def choose_slot(num_practiced: Sequence[float], uniform: float, rng: np.random.Generator) -> int:
    """Index of the harness slot.

    Args:
        num_practiced: the member's decayed number of groups in each slot's harness.
        uniform: share of choices made uniformly, so that no pairing is ever starved by a count.
        rng: the decision's generator.
    """
    if rng.random() < uniform:
        return int(rng.integers(len(num_practiced)))
    thinnest = min(num_practiced)
    ties = [i for i, n in enumerate(num_practiced) if n <= thinnest + 1e-9]
    return ties[int(rng.integers(len(ties)))]
