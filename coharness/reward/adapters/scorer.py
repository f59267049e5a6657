"""What an adapter needs: scores of (question, candidate) items, and texts out of the shapes that trainers pass around."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from coharness.records.errors import BoundaryError
from coharness.reward.judges.judgment import Judgment


class Scorer(Protocol):
    """Scores items, in order; a failure is a judgment without a value."""

    def score_all(self, items: Sequence[tuple[str, str]]) -> list[Judgment]:
        """Scores of (question, candidate) items."""
        ...


class NotScored(BoundaryError):
    """An item could not be scored, and the trainer that asks has no word for that."""


def text_of(value: Any) -> str:
    """The text of a prompt or completion: a string, or a conversation, whose last message or all messages are taken.

    Raises:
        TypeError: neither.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and all(isinstance(m, Mapping) for m in value):
        return "\n\n".join(_content(message) for message in value)
    raise TypeError(f"got a {type(value).__name__}, expected a text or a list of messages with content")


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, Sequence):
        # Content in pieces; what is no text is not judged by a text judge.
        return "".join(str(piece.get("text", "")) for piece in content if isinstance(piece, Mapping))
    raise TypeError(f"a message has content of type {type(content).__name__}, expected a text")
