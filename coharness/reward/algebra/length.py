"""Terms for effort: what a completion's length is worth, each in [0, 1].

All of them are parts that a rule weighs; none pays for silence, since their users count them only where an answer was read.
"""

from collections.abc import Sequence


def unused_share(used: int, allowed: int) -> float:
    """The share of a token budget that was left."""
    _check(used, allowed)
    return max(0.0, 1.0 - used / allowed)


def within_soft_limit(used: int, allowed: int, margin: int) -> float:
    """1 up to `allowed - margin` tokens, falling to 0 at `allowed`; the soft punishment of overlong answers.

    Source: Yu et al. (2025), DAPO. Unlike `unused_share` it leaves answers of a fitting length alone.
    """
    _check(used, allowed)
    if not 0 < margin <= allowed:
        raise ValueError(f"the margin is {margin}, expected 1 to the {allowed} tokens allowed")
    return min(1.0, max(0.0, (allowed - used) / margin))


def relative_brevity(lengths: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """How short each attempt is beside the others of its group, in [0, 1]; a wrong one never above the middle.

    λ = 1 - (len - min) / (max - min), all .5 where the lengths are equal; for a wrong answer min(.5, λ), so that a short
    wrong answer is not preferred to a long wrong one by more than noise. Source: Kimi team (2025), k1.5, moved to [0, 1].

    Raises:
        ValueError: lengths and verdicts that do not match, or none.
    """
    if len(lengths) != len(correct) or not lengths:
        raise ValueError(f"got {len(lengths)} lengths and {len(correct)} verdicts, expected as many, and at least one")
    low, high = min(lengths), max(lengths)
    span = high - low
    scores = [0.5 if span == 0 else 1.0 - (n - low) / span for n in lengths]
    return [score if right else min(0.5, score) for score, right in zip(scores, correct, strict=True)]


def _check(used: int, allowed: int) -> None:
    if allowed < 1 or used < 0:
        raise ValueError(f"got {used} tokens of {allowed}, expected 0 or more of at least 1")
