"""From an answer to a training score: verifiers that say whether it is correct, and the weighing of a score's parts.

Invariant: a failure of a verifier is a BoundaryError, never a number; NaN is an error; correctness alone is what
evaluation looks at, the weighted score is a training signal.
"""

from coharness.reward.score import score_episode

__all__ = ["score_episode"]
