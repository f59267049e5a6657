"""`coharness watch RUN`: follow a run that another process carries out, from its files alone."""

import time
from pathlib import Path

from coharness.cli.display import Progress, open_display
from coharness.cli.exit_codes import ExitCode
from coharness.cli.stopping import StopSwitch

LEAST_WAIT_S = 1.0
"""Seconds between two looks at the journal; a look that takes long waits longer, to cost at most a tenth of a core."""
TICK_S = 0.1
"""How soon leaving is noticed."""


def watch(run: Path, *, progress: Progress) -> ExitCode:
    """Show a run until it is done or stopped, or the watcher leaves with Ctrl-C; the run does not notice."""
    from coharness.loop.run_dir import RunDir
    from coharness.loop.status import status_from_journal

    RunDir.open(run)
    with StopSwitch() as switch:
        display = open_display(progress, str(run))
        try:
            while switch.wanted is None:
                began = time.monotonic()
                status = status_from_journal(run)
                display.update(status)
                stopped = status["phase"] == "stopping" and not any(status["in_flight"].values())
                if status["phase"] == "done" or stopped:
                    break
                now = time.monotonic()
                until = now + max(LEAST_WAIT_S, 10 * (now - began))
                while switch.wanted is None and time.monotonic() < until:
                    time.sleep(TICK_S)
        finally:
            display.close()
    return ExitCode.DONE
