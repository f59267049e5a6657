"""Handles: short names for files that a judge may look at, so that no text of a candidate ever becomes a path."""

import re
from pathlib import Path

_HANDLE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class UnknownHandle(Exception):
    """A name that is no handle, or that nothing is kept under."""


def file_of(store: Path, handle: str) -> Path:
    """The file under a handle in a store.

    Raises:
        UnknownHandle: the name is no handle, nothing is there, or what is there leads out of the store.
    """
    if not _HANDLE.fullmatch(handle):
        raise UnknownHandle("a handle has 1 to 64 lower-case letters, digits, - and _")
    path = store / handle
    try:
        real = path.resolve(strict=True)
    except OSError as error:
        raise UnknownHandle("nothing is kept under this handle") from error
    if real.parent != store.resolve() or not real.is_file():
        raise UnknownHandle("nothing is kept under this handle")
    return real
