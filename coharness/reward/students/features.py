"""A text and its question as numbers: hashed words and word pairs, and what can be counted.

No vocabulary is kept: a word's column is a hash of it, so that a student is of one size whatever it saw, and a column that no
training text had tells that a text is new. Signs are hashed too, so that collisions cancel on average (Weinberger et al., 2009).
"""

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse

from coharness.reward.monitors.shortcut import FEATURES, text_features

NUM_BUCKETS = 1 << 14
_WORD = re.compile(r"\w+|[^\w\s]")
COUNTED = (*FEATURES, "covered", "copied", "numbers", "question_length", "length_ratio")
"""Names of the columns that are counted, behind those that are hashed."""

Item = tuple[str, str]
"""(question, answer)."""


def hashed(items: Sequence[Item]) -> sparse.csr_matrix:
    """Hashed words of the answers, pairs of neighbours, and words shared with the question; rows of length 1 [N, NUM_BUCKETS]."""
    rows, columns, values = [], [], []
    for row, (question, answer) in enumerate(items):
        counts: dict[int, float] = {}
        for token in _tokens(question, answer):
            code = zlib.crc32(token.encode("utf-8", "surrogatepass"))
            bucket, sign = code % NUM_BUCKETS, 1.0 if code & 0x80000000 else -1.0
            counts[bucket] = counts.get(bucket, 0.0) + sign
        norm = np.sqrt(sum(v * v for v in counts.values())) or 1.0
        rows += [row] * len(counts)
        columns += list(counts)
        values += [v / norm for v in counts.values()]
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(items), NUM_BUCKETS))


def _tokens(question: str, answer: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(answer)]
    asked = {word.lower() for word in _WORD.findall(question)}
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return [*words, *pairs, *(f"?{word}" for word in words if word in asked)]


def counted(items: Sequence[Item]) -> npt.NDArray[np.float64]:
    """What can be counted of each item [N, len(COUNTED)]."""
    table = np.zeros((len(items), len(COUNTED)))
    for row, (question, answer) in enumerate(items):
        asked, said = set(_lower(question)), _lower(answer)
        shared = [word for word in said if word in asked]
        table[row] = [
            *text_features(answer).values(),
            len(asked & set(said)) / max(len(asked), 1),
            len(shared) / max(len(said), 1),
            float(np.log1p(sum(word.isdigit() for word in said))),
            float(np.log1p(len(question))),
            float(np.log1p(len(answer)) - np.log1p(len(question))),
        ]
    return table


def _lower(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
