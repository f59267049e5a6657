"""Libraries that come with the package, as files."""

from pathlib import Path

from coharness.reward.library.files import read_library
from coharness.reward.library.library import Library

BY_HAND = Path(__file__).parent / "by-hand"
"""Folder of the library that was written by hand."""


def by_hand() -> Library:
    """Seven skills that were written by hand, with weights that were guessed: a start, and the control to beat."""
    return read_library(BY_HAND)
