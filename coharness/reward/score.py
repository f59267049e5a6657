"""The training score of one episode: a weighted sum of parts that are all kept."""

import math

from coharness.records.episode import Score
from coharness.records.harness import RewardGenes
from coharness.records.protocols import Check


def score_episode(check: Check | None, parsed: bool, tokens_used: int, max_tokens: int, genes: RewardGenes) -> Score:
    """Weigh the parts of one episode.

    The parts, each in [0, 1]: `exact`, the verifier accepts the answer; `partial`, its partial credit; `format`, an answer
    could be read; `length`, the share of the token budget left unused. Length counts only where an answer could be read, or
    silence would earn it. The value is the plain sum of weight times part: not normalised, so that a weight means the same
    whatever the others are, and what compares values within a group (an advantage) is free of scale anyway.

    Args:
        check: what the verifier said; None where no answer could be read.
        parsed: whether an answer could be read.
        tokens_used: tokens the policy wrote over all turns.
        max_tokens: what it was allowed to write.
        genes: weights of the parts.

    Raises:
        ValueError: the value is not finite, or `check` and `parsed` contradict each other.
    """
    if parsed != (check is not None):
        raise ValueError(f"an answer is checked exactly where one was read, got parsed={parsed} and check={check}")
    if max_tokens < 1 or tokens_used < 0:
        raise ValueError(f"expected max_tokens >= 1 and tokens_used >= 0, got {max_tokens} and {tokens_used}")
    exact = float(check is not None and check.correct)
    partial = 0.0 if check is None else check.partial
    length = max(0.0, 1.0 - tokens_used / max_tokens) if parsed else 0.0
    value = genes.exact * exact + genes.partial * partial + genes.format * float(parsed) + genes.length * length
    if not math.isfinite(value):
        raise ValueError(
            f"the score is {value}: parts exact={exact}, partial={partial}, length={length}, weights {genes}"
        )
    return Score(
        value=value,
        exact=exact,
        partial=partial,
        format=float(parsed),
        length=length,
        feedback="no answer could be read" if check is None else check.feedback,
    )
