"""Keeping keys out of everything that is written down: messages, logs, caches, error bodies."""

import os
import re

from coharness.records.errors import PreflightError

_KEYLIKE = re.compile(
    r"\b(?:sk|pk|key|tok|ghp|hf|AKIA)[-_]?[A-Za-z0-9_-]{16,}\b|\bBearer\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE
)
HIDDEN = "[redacted]"


def redacted(text: str, *known: str | None) -> str:
    """The text without the known secrets and without what looks like a key."""
    for secret in known:
        if secret:
            text = text.replace(secret, HIDDEN)
    return _KEYLIKE.sub(HIDDEN, text)


def key_from_env(name: str | None) -> str | None:
    """The key in an environment variable, None where no name is given.

    Raises:
        PreflightError: the variable is not set.
    """
    if name is None:
        return None
    key = os.environ.get(name, "")
    if not key:
        raise PreflightError(
            f"the environment variable {name} is not set; it must hold the key of the judge's endpoint"
        )
    return key
