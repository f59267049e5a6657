"""Files of JSON lines that a linear judge is fitted to and gated on.

A pair is {question, better, worse}, a verdict {question, answer, right}.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from coharness.records.errors import ConfigError
from coharness.reward.json_rows import read_rows
from coharness.reward.linear.fit import Ordered, Settled


def read_pairs(path: Path) -> list[Ordered]:
    """Pairs of a file; further fields are passed over.

    Raises:
        ConfigError: the file cannot be read, holds no pair, or a line is none; names the line.
    """
    pairs = []
    for where, row in read_rows(path):
        texts = [row.get(name) for name in ("question", "better", "worse")]
        if not all(isinstance(text, str) for text in texts) or texts[1] == texts[2]:
            raise ConfigError(
                f"{where} is no pair; expected texts question, better and worse, the last two of them different"
            )
        pairs.append(Ordered(question=str(texts[0]), better=str(texts[1]), worse=str(texts[2])))
    if not pairs:
        raise ConfigError(f"{path} holds no pair; expected JSON lines with question, better and worse")
    return pairs


def read_settled(path: Path) -> list[Settled]:
    """Verdicts of a file; further fields are passed over.

    Raises:
        ConfigError: the file cannot be read, or a line is no verdict; names the line.
    """
    found = []
    for where, row in read_rows(path):
        question, answer, right = (row.get(name) for name in ("question", "answer", "right"))
        if not isinstance(question, str) or not isinstance(answer, str) or not isinstance(right, bool):
            raise ConfigError(f"{where} is no verdict; expected texts question and answer, and right as true or false")
        found.append(Settled(question=question, answer=answer, right=right))
    return found


def write_pairs(path: Path, pairs: Sequence[Ordered]) -> None:
    """Write pairs as `read_pairs` reads them."""
    lines = [
        json.dumps({"question": p.question, "better": p.better, "worse": p.worse}, ensure_ascii=True) for p in pairs
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
