"""The error family, and the one helper that attributes a failure to the boundary it crossed.

    CoharnessError
    ├── ConfigError          a config, an override or a combination of settings is wrong      (also ValueError)
    ├── PreflightError       the config is fine, this machine or these files are not
    ├── JournalError         a journal cannot be read: newer schema, damage in its middle
    ├── ReplayMismatch       a replay decided otherwise than the run did
    ├── WeightsError         weights are missing, damaged, non-finite or of another base
    ├── TaskError            a task file or a task source is wrong                            (also ValueError)
    └── BoundaryError        something failed while crossing a named boundary (becomes a failed Outcome)

A user's mistake is also a ValueError. A failed episode is data, never a crash: `boundary()` turns whatever escapes a
named step into a BoundaryError that a worker reports in its Outcome.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum


class CoharnessError(Exception):
    """Root of every error that coharness raises on purpose."""


class ConfigError(CoharnessError, ValueError):
    """A config file, an override or a combination of settings is wrong."""


class PreflightError(CoharnessError):
    """The configuration is valid, but something it needs is missing or wrong here."""


class JournalError(CoharnessError):
    """The journal cannot be trusted: newer schema, or damage that is not a torn tail."""


class ReplayMismatch(CoharnessError):
    """A recomputed decision differs from the recorded one."""


class WeightsError(CoharnessError):
    """Weights are missing, damaged, non-finite, or belong to another base."""


class TaskError(CoharnessError, ValueError):
    """A task file or a task source is wrong; the message names the file and line."""


class Boundary(StrEnum):
    """The steps an episode or a job crosses; a failure names exactly one."""

    TASK = "task"
    "Making the task from its source."
    HARNESS = "harness"
    "Compiling the harness into a prompt."
    GENERATION = "generation"
    "Decoding tokens with the policy."
    VERIFIER = "verifier"
    "Checking the answer."
    REPLAY = "replay"
    "Writing to or reading from the replay store."
    TRAINING = "training"
    "Updating weights."
    WEIGHTS = "weights"
    "Loading, verifying or publishing weights."
    WORKER = "worker"
    "The process doing the work died or stopped answering."
    DEADLINE = "deadline"
    "The work did not end in its time."


class BoundaryError(CoharnessError):
    """A failure attributed to the boundary it crossed."""

    def __init__(self, boundary: Boundary, message: str) -> None:
        super().__init__(boundary, message)
        self.boundary = boundary
        self.message = message

    def __str__(self) -> str:
        return f"{self.boundary}: {self.message}"


@contextmanager
def boundary(name: Boundary) -> Iterator[None]:
    """Attribute any exception that escapes the block to `name`; an inner boundary keeps its own name."""
    try:
        yield
    except BoundaryError:
        raise
    except Exception as error:
        raise BoundaryError(name, f"{type(error).__name__}: {error}") from error
