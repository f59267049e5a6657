"""Owns `ELond`, the run-level error budget that all promotion gates of a run share.

Invariants: a level depends only on the number a test took when it started and on how many tests had been rejected
(challengers accepted) when it ended, so tests may overlap and may depend on each other. The gate asks for a level at
every look, since the count of rejections may have grown; nothing is stored here.

Why overlap is allowed: let E_k be an e-value at the stopping time of test k, rejected when E_k >= 1/alpha_k with
alpha_k = alpha * gamma_k * (R_k + 1), where R_k counts the rejections before it ended. With R the final count, a
rejected test has R_k + 1 <= R, hence FDP = sum over nulls 1{E_k >= 1/alpha_k} / max(R, 1)
<= sum alpha_k E_k 1{rejected} / R <= alpha * sum gamma_k E_k, whose mean is at most alpha * sum gamma_k = alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def gamma(k: int) -> float:
    """Return gamma_k = 6 / (pi^2 k^2), the share of the budget of the k-th test; the shares of all k >= 1 sum to 1."""
    if k < 1:
        raise ValueError(f"test number: got {k!r}, expected 1 or more; tests are numbered from 1 when they start")
    return 6.0 / (math.pi * k) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ELond:
    """Levels of online testing with e-values that keep the false discovery rate at or below `alpha` (e-LOND).

    Valid under any dependence between the tests, at any stopping time of each. Source: Xu and Ramdas, Online multiple
    testing with e-values (2024).

    Miniature: with alpha 0.1 the first test has level 0.0608 and needs E >= 16.4; if it is accepted, the second has
    0.1 * 0.152 * 2 = 0.0304 and needs E >= 32.9; if not, 0.0152 and E >= 65.8.
    """

    alpha: float = 0.1
    """False discovery rate of the whole run."""

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"ELond.alpha: got {self.alpha!r}, expected a false discovery rate in (0, 1), such as 0.1")

    def level(self, k: int, num_rejections_when_ended: int) -> float:
        """Return alpha_k = alpha * gamma_k * (R + 1), at most 1; the test is rejected at an e-value of 1 / alpha_k.

        `k` is the number the test took when it started, from 1; `num_rejections_when_ended` is R, the tests rejected
        before this one ends, whenever they started. A level above 1 (possible only for a very old test overtaken by
        many accepted ones) is cut to 1, which keeps the guarantee. Raises ValueError on k < 1 or R < 0.
        """
        if num_rejections_when_ended < 0:
            raise ValueError(f"num_rejections_when_ended: got {num_rejections_when_ended!r}, expected 0 or more")
        return min(1.0, self.alpha * gamma(k) * (num_rejections_when_ended + 1))
