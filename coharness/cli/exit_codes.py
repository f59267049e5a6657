"""What the process's exit code says, for scripts and schedulers."""

from enum import IntEnum

from coharness.records.errors import CoharnessError, ConfigError, PreflightError, ReplayMismatch, TaskError


class ExitCode(IntEnum):
    """How a command ended; a sentence each."""

    DONE = 0
    "It did what was asked."
    FAILED = 1
    "It broke: damaged files, missing weights, or a mistake of ours."
    BAD_CONFIG = 2
    "The command line, a config or a task file is wrong; nothing was started."
    BUDGET_SPENT = 3
    "The run ended in order, but its minutes were spent before its rollouts were."
    CHECK_FAILED = 4
    "A check said no: the preflight, the doctor, a replay that decided otherwise, a study below its bars."
    INTERRUPTED = 130
    "A person or a scheduler stopped it; it can be resumed."


def code_of(error: CoharnessError) -> ExitCode:
    """The exit code of an error that reached the command line."""
    match error:
        case ConfigError() | TaskError():
            return ExitCode.BAD_CONFIG
        case PreflightError() | ReplayMismatch():
            return ExitCode.CHECK_FAILED
        case _:
            return ExitCode.FAILED
