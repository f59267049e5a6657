"""`coharness resume RUN`: go on with a run that was interrupted or killed, from its journal."""

from pathlib import Path

from coharness.cli.display import Progress
from coharness.cli.exit_codes import ExitCode


def resume(run: Path, *, as_json: bool, progress: Progress) -> ExitCode:
    """Resume a run under a new epoch, to its report; one that ended already gets what is missing of its report.

    Raises:
        ConfigError: the folder is no run.
        JournalError: the journal is damaged.
    """
    from coharness.cli.session import drive
    from coharness.loop.run_dir import RunDir

    return drive(RunDir.open(run), run, resume=True, as_json=as_json, progress=progress)
