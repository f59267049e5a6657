"""The load of the speed comparisons: how long an answer is, what it earns, how long its reward takes.

Both sides run this file, each in its own interpreter, so it imports the standard library alone. Everything is a function of text
or token ids, never of the order in which they come: two loops that draw the same prompt write answers of the same length.
"""

import hashlib
import math
from collections.abc import Sequence
from statistics import NormalDist

FIXED_LENGTH = 32
"""Tokens of an answer, end token included, where all are alike."""
TAIL_LOW, TAIL_MEDIAN, TAIL_HIGH = 8, 12, 128
"""Tokens of an answer where lengths have a heavy tail; the 99th percentile is ten times the median."""
LATENCY_S = 0.2
"""Longest wait for a reward; waits are uniform from 0."""

_TAIL_SIGMA = math.log(10) / NormalDist().inv_cdf(0.99)


def uniform(purpose: str, what: str) -> float:
    """A number in (0, 1) that is fixed by its arguments."""
    digest = hashlib.blake2b(f"{purpose}\x1f{what}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2**64


def answer_length(lengths: str, prompt_ids: Sequence[int]) -> int:
    """Tokens of every answer to this prompt, end token included.

    Args:
        lengths: `fixed`, or `tail`: log-normal, cut at its bounds.
        prompt_ids: The prompt, without padding.
    """
    if lengths == "fixed":
        return FIXED_LENGTH
    drawn = NormalDist().inv_cdf(uniform("length", " ".join(map(str, prompt_ids))))
    return min(max(round(TAIL_MEDIAN * math.exp(_TAIL_SIGMA * drawn)), TAIL_LOW), TAIL_HIGH)


def reward(answer: str) -> float:
    """What an answer earns: a number of its own, so that every group has spread and every row is trained on."""
    return uniform("reward", answer.strip())


def latency_s(answer: str) -> float:
    """Seconds that the reward of this answer takes."""
    return LATENCY_S * uniform("latency", answer.strip())
