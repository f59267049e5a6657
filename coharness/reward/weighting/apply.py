"""A rubric with other weights. It is another rubric, by its content hash: judgments of the two are never mixed."""

from collections.abc import Mapping
from dataclasses import replace

from coharness.reward.judges.rubric import Rubric
from coharness.reward.weighting.simplex import normalised

LEAST = 1e-6
"""Weight of a criterion that counts for nothing: a rubric's weights are above 0, and its criterion is still judged and seen."""


def reweighted(rubric: Rubric, weights: Mapping[str, float]) -> Rubric:
    """The rubric with these weights, scaled to the sum that it had.

    Raises:
        ValueError: a criterion has no weight, or a weight no criterion.
    """
    names = {c.name for c in rubric.criteria}
    if names != weights.keys():
        raise ValueError(
            f"got weights of {', '.join(sorted(weights))}; expected one for each criterion of {rubric.name}: "
            f"{', '.join(sorted(names))}"
        )
    total = sum(c.weight for c in rubric.criteria)
    new = normalised(weights)
    return replace(rubric, criteria=tuple(replace(c, weight=total * max(new[c.name], LEAST)) for c in rubric.criteria))
