"""What needs no judge: candidates without content are worth nothing, and are told apart before anything is paid.

Reference-based judges have been fooled by a lone ":" or "Thought process:" (2025). Such a candidate gets 0 on every criterion
with the reason; that is a measurement, not a failure.
"""

import re
from dataclasses import dataclass

MAX_CHARS = 200_000
"""Longest candidate that is judged at all."""
_OPENERS = re.compile(
    r"(?:thought process|reasoning|solution|answer|final answer|explanation|analysis|response|output|step \d+|"
    r"let'?s (?:think|solve|work)[^.\n]{0,60}|sure|certainly|of course|here (?:is|are)[^.\n:]{0,40})\s*[:.!…]*",
    re.IGNORECASE,
)
_LETTER = re.compile(r"\w")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Degenerate:
    """Why a candidate needs no judge."""

    rule: str
    "empty, opener, loop or overlong."
    reason: str


def degenerate(text: str, *, max_chars: int = MAX_CHARS) -> Degenerate | None:
    """Why this candidate is worth nothing, None where a judge must look; linear in the text's length."""
    if len(text) > max_chars:
        return Degenerate(rule="overlong", reason=f"{len(text)} characters, more than the {max_chars} that are judged")
    stripped = text.strip()
    if not _LETTER.search(stripped):
        return Degenerate(rule="empty", reason="no letter and no digit")
    if len(stripped) < 120 and _OPENERS.fullmatch(stripped):
        return Degenerate(rule="opener", reason="an opening without anything after it")
    if _is_loop(stripped):
        return Degenerate(rule="loop", reason="the same words over and over")
    return None


def _is_loop(text: str) -> bool:
    """Whether a long text repeats a few phrases: most of its eight-word windows are copies."""
    words = _WORD.findall(text)
    if len(words) < 64:
        return False
    windows = [tuple(words[i : i + 8]) for i in range(0, len(words) - 7)]
    return len(set(windows)) / len(windows) < 0.2
