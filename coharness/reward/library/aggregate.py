"""From pairs to one order of K: independent pair verdicts need not agree with any order, and a score always does.

Kemeny's order breaks as few verdicts as any order can; at up to eight candidates it is found by trying all. Strengths come from
`coharness.reward.panel.davidson`, which handles ties and candidates that never win.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

from coharness.reward.library.preferences import Label

MAX_CANDIDATES = 8
"""8! orders are tried in a blink; beyond, sort by strengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of candidates and how well the verdicts agree with it."""

    best_first: tuple[str, ...]
    broken: float
    "Weight of the verdicts that it contradicts; a tie costs half of its weight wherever it lies."
    unique: bool
    "Whether no other order breaks as little."
    cyclic: bool
    "Whether the strict verdicts contradict each other, so that no order can keep them all."


def kemeny(verdicts: Mapping[tuple[str, str], Label], weights: Mapping[tuple[str, str], float] | None = None) -> Order:
    """The order that contradicts the least weight of verdicts (Kemeny, 1959); of equal ones, the first by name.

    Args:
        verdicts: (a, b) -> which is better; each pair once, in either order.
        weights: how much each counts, 1 where left out.

    Raises:
        ValueError: more than eight candidates, or a pair that stands twice.
    """
    names = sorted({name for pair in verdicts for name in pair})
    if len(names) > MAX_CANDIDATES:
        raise ValueError(
            f"got {len(names)} candidates, expected {MAX_CANDIDATES} at most; sort larger groups by strengths"
        )
    gain: dict[tuple[str, str], float] = {}
    ties = 0.0
    for (a, b), label in verdicts.items():
        if (b, a) in verdicts or a == b:
            raise ValueError(f"the pair {a!r}, {b!r} stands twice; expected each pair once")
        weight = 1.0 if weights is None else weights.get((a, b), 1.0)
        if label is Label.TIE:
            ties += weight / 2
        else:
            gain[(a, b) if label is Label.A else (b, a)] = weight
    scored = []
    for order in permutations(names):
        place = {name: index for index, name in enumerate(order)}
        scored.append((sum(w for (better, worse), w in gain.items() if place[better] > place[worse]), order))
    least = min(score for score, _ in scored)
    best = [order for score, order in scored if score <= least + 1e-12]
    return Order(best_first=best[0] if best else (), broken=least + ties, unique=len(best) == 1, cyclic=least > 0.0)
