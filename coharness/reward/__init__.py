"""From an answer to a training score: verifiers, judges, the algebra that weighs their parts, and what watches over both.

    attempt ─► verifier ─► parts ─┐
        └────► judge ───► parts ──┴─► rule ─► group ─► training score        README.md shows rules and rubrics

Invariant: a failure of a verifier or judge is a BoundaryError or a part without a value, never a number; NaN is an error;
correctness alone is what evaluation looks at, the weighted score is a training signal.
"""

from coharness.reward.score import score_episode, score_group

__all__ = ["score_episode", "score_group"]
