"""Notices the processes that this one starts: what they import, nobody sees here, and a result may depend on it.

Nothing declares a start, so nothing can forget to. Invariant: what is seen may be too much, never too little.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_STARTS = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "pty.spawn")
)
_QUIET_STARTS = ("multiprocessing.popen_fork", "multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")
"""Imported when multiprocessing starts a process, which not every way of it reports as an event."""
_FLEETS = ("actors.", "clusters.")


@dataclass(slots=True, eq=False)
class Processes:
    """What was seen while it was watched."""

    before: frozenset[str]
    seen: list[str] = field(default_factory=list)

    def started(self) -> list[str]:
        """A word for each kind of process that may have run code of ours elsewhere: a program, or what starts workers."""
        new = {name for name in sys.modules if name not in self.before}
        quiet = [name for name in new if name in _QUIET_STARTS]
        fleets = [name.partition(".")[0] for name in new if name == "ray" or name.startswith(_FLEETS)]
        return sorted({*self.seen, *quiet, *fleets})


_watching: list[Processes] = []
_hooked: list[bool] = []


@contextmanager
def watch_processes() -> Iterator[Processes]:
    """Notice the processes that this one starts meanwhile.

    Ray's workers are noticed by what must be imported for them; a process that is itself an actor has it before, and imports
    more of the fleet if it starts workers of its own.
    """
    if not _hooked:
        # A hook stays for the life of its process, so there is one, and it is asleep while nobody watches.
        sys.addaudithook(_notice)
        _hooked.append(True)
    watch = Processes(frozenset(sys.modules))
    _watching.append(watch)
    try:
        yield watch
    finally:
        _watching.remove(watch)


def _notice(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event in _STARTS:
        program = Path(os.fsdecode(args[0])).name if event == "subprocess.Popen" else event
        for watch in _watching:
            watch.seen.append(program)
