"""Soups: the plain average of all parents, and the greedy one that takes a parent in only where a score does not fall.

Invariants as in `linear`. The greedy soup asks for scores, so it runs where a score can be had (a script, a tuner), not in a
trainer's job; there the race of each merge plays its part. Driven through `merging.RULES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from coharness.evolution.merging.linear import linear
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap, canonical_order, flat
from coharness.evolution.merging.preflight import check_mergeable, check_weights, refuse_base


def uniform_soup(
    tensors: Sequence[TensorMap],
    weights: Sequence[float],
    base: TensorMap | None = None,
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> dict[str, Tensor]:
    """The average of all parents, each counting once whatever its weight (Wortsman et al., 2022).

    Args:
        tensors: The parents' maps.
        weights: One a parent; checked, and not used.
        base: Must be None.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Returns:
        As `linear`.

    Raises:
        ValueError: as `linear`.
    """
    refuse_base("uniform_soup", base)
    check_weights(weights, len(tensors), normalize=True)
    return linear(tensors, [1.0] * len(tensors), chunk_bytes=chunk_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedySoup:
    """A greedy soup and how it came about."""

    tensors: dict[str, Tensor]
    chosen: tuple[int, ...]
    "Parents in the soup, in the order they were taken in."
    score: float


def greedy_soup(
    tensors: Sequence[TensorMap],
    score: Callable[[TensorMap], float],
    *,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> GreedySoup:
    """The average of the best parent and of every other, best first, with which the average scores no worse.

    Source: Wortsman et al., 2022.

    Args:
        tensors: The parents' maps.
        score: What a map is worth, higher is better, on data that nothing else is judged by; asked 2 * parents - 1 times.
        chunk_bytes: Bound on the working memory beside inputs and result.

    Raises:
        ValueError: maps fail preflight, or a score is NaN.
    """
    check_mergeable(tensors)
    scores = [_known(score(parent), f"map {i}") for i, parent in enumerate(tensors)]
    names = sorted(tensors[0])
    # Equal scores go by content, so that the order of the parents decides nothing.
    order = canonical_order([[flat(m[name]) for name in names] for m in tensors], [-s for s in scores])
    chosen = [order[0]]
    best = linear([tensors[order[0]]], [1.0], chunk_bytes=chunk_bytes)
    best_score = scores[order[0]]
    for candidate in order[1:]:
        tried = [*chosen, candidate]
        soup = linear([tensors[i] for i in tried], [1.0] * len(tried), chunk_bytes=chunk_bytes)
        found = _known(score(soup), f"the soup of maps {tried}")
        if found >= best_score:
            chosen, best, best_score = tried, soup, found
    return GreedySoup(tensors=best, chosen=tuple(chosen), score=best_score)


def _known(score: float, what: str) -> float:
    if score != score:
        raise ValueError(f"the score of {what} is NaN; expected a number (a failed evaluation is not a score)")
    return score
