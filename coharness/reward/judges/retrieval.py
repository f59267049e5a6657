"""Precedents and passages by BM25 (Robertson et al., 1994), through the bm25s package.

Settled cases of the same question are never shown: a judge that sees the answer to the item at hand is measured on nothing.
"""

import importlib
import re
from collections.abc import Sequence
from typing import Any

from coharness.records.errors import PreflightError
from coharness.reward.judges.prompt import Precedent

MAX_PRECEDENTS = 4
_TOKEN = re.compile(r"\w+")


class Corpus:
    """An index over texts; immutable."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Index the texts.

        Raises:
            PreflightError: bm25s is not installed.
            ValueError: no text has a word.
        """
        try:
            bm25s: Any = importlib.import_module("bm25s")
        except ImportError as error:
            raise PreflightError(
                "retrieval for judges needs the package bm25s; install it with: pip install 'coharness-evolution[judge]'"
            ) from error
        tokens = [_tokens(text) for text in texts]
        if not any(tokens):
            raise ValueError(f"none of the {len(texts)} texts has a word, so nothing can be found in them")
        self._texts = tuple(texts)
        self._index: Any = bm25s.BM25()
        self._index.index(tokens, show_progress=False)
        self._vocabulary = frozenset(word for words in tokens for word in words)

    def __len__(self) -> int:
        return len(self._texts)

    def search(self, query: str, num: int) -> list[tuple[int, float]]:
        """Indices and scores of the best texts, best first; only those that share a word with the query."""
        words = [word for word in _tokens(query) if word in self._vocabulary]
        if not words:
            return []
        found, scores = self._index.retrieve([words], k=min(num, len(self._texts)), show_progress=False)
        return [(int(i), float(s)) for i, s in zip(found[0], scores[0], strict=True) if s > 0]


class Precedents:
    """Settled cases, found by their question; a `Recall` of the rubric judge."""

    def __init__(self, cases: Sequence[Precedent], *, num: int = MAX_PRECEDENTS) -> None:
        """`num` are shown at most, no more than 4: judges follow the crowd of their examples."""
        self._cases = tuple(cases)
        self._num = min(num, MAX_PRECEDENTS)
        self._corpus = Corpus([case.question for case in cases])

    def __call__(self, question: str) -> list[Precedent]:
        """The nearest cases of other questions."""
        own = " ".join(_tokens(question))
        ranked = self._corpus.search(question, 4 * self._num + 8)
        cases = [self._cases[index] for index, _ in ranked if " ".join(_tokens(self._cases[index].question)) != own]
        return cases[: self._num]


def _tokens(text: str) -> list[str]:
    return [word.lower() for word in _TOKEN.findall(text)]
