"""The tasks of the speed comparisons, as a user would write them: `tasks: [{type: python, path: tasks.py:prompt}]`.

What is asked does not matter here, only that prompts are of one length and rewards have spread; see `load`.
"""

import time
from random import Random

from coharness.records.protocols import TaskSource
from coharness.tasks import simple_source
from experiments.benchmarks.loop.load import latency_s, reward

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROMPT_LETTERS = 15


def _make(level: int, rng: Random) -> tuple[str, str]:
    return "".join(rng.choice(LETTERS) for _ in range(PROMPT_LETTERS)), "none"


def _score(question: str, expected: str, answer: str) -> float:
    return reward(answer)


def _score_late(question: str, expected: str, answer: str) -> float:
    time.sleep(latency_s(answer))
    return reward(answer)


def prompt() -> TaskSource:
    """Rewards at once."""
    return simple_source("letters", _make, score=_score, formats=("plain",))


def late() -> TaskSource:
    """Rewards that keep one waiting, as a judge over the network does."""
    return simple_source("letters", _make, score=_score_late, formats=("plain",))
