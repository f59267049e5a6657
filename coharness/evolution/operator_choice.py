"""Which operator to try next, by what came of those that were tried: a bandit on accepted per raced.

Each operator's chance of being accepted has a Beta posterior; one draw from each, and the highest is tried (Thompson, 1933).
So an operator that loses its races is tried less and never given up, and one with no race yet is tried because it might be
good. The prior is worth four races, so that a few decide. The draw is a pure function of counts and seed: a replay makes it
again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from coharness.records.ids import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of an operator's proposals that were decided."""

    accepted: int = 0
    rejected: int = 0

    def __post_init__(self) -> None:
        if self.accepted < 0 or self.rejected < 0:
            raise ValueError(f"got {self.accepted} accepted and {self.rejected} rejected; expected counts of 0 or more")

    @property
    def raced(self) -> int:
        """How many were decided."""
        return self.accepted + self.rejected


MERGE_PRIOR: Final[Mapping[str, float]] = {"task_arithmetic": 0.5, "linear": 0.35, "ties": 0.3, "slerp": 0.3}
"""Merge rule -> expected share of races won before any. On language models only task arithmetic has helped reliably
(arXiv 2511.21437); all rules that are not named here start at `UNKNOWN`."""
UNKNOWN: Final = 0.25
PRIOR_RACES: Final = 4.0
"""Races that the prior counts for."""


def choose_operator(
    operators: Sequence[str],
    tried: Mapping[str, Tried],
    seed: int,
    prior: Mapping[str, float] = MERGE_PRIOR,
) -> str:
    """The operator to try next.

    Args:
        operators: Those there are to choose from, in any order; one alone is chosen without a draw.
        tried: What came of each; one that is missing was never decided.
        seed: Of this choice.
        prior: Expected share of acceptances, above 0 to below 1; `UNKNOWN` for operators that are missing.

    Raises:
        ValueError: there is no operator, or one stands twice.
    """
    if not operators or len(set(operators)) < len(operators):
        raise ValueError(f"asked to choose from {list(operators)}; expected at least one operator and none twice")
    if len(operators) == 1:
        return operators[0]
    return max(sorted(operators), key=lambda operator: _draw(operator, tried.get(operator, Tried()), seed, prior))


def _draw(operator: str, known: Tried, seed: int, prior: Mapping[str, float]) -> float:
    # A generator for each operator, so that the draw of one does not depend on which others there are.
    rng = np.random.default_rng(derive_seed("operator", seed, operator))
    share = prior.get(operator, UNKNOWN)
    return float(rng.beta(PRIOR_RACES * share + known.accepted, PRIOR_RACES * (1 - share) + known.rejected))
