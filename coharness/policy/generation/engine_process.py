"""A process of our own that holds an engine: started with a channel, ended by its id.

Owns the process from start to end. Invariants: it dies with its parent (its end of the channel closes, however the parent died);
it is in a session of its own, so Ctrl-C reaches the parent alone, and its children are ended with it; every wait has a deadline.
What it prints goes to a log file, whose end is quoted when it dies.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import coharness
from coharness.policy.generation.channel import Channel

_TAIL_BYTES: Final = 4_000
_TAIL_LINES: Final = 6
_LOOK_S: Final = 0.02


@final
class EngineProcess:
    """One life of an engine's process."""

    def __init__(self, module: str, env: Mapping[str, str], log: Path) -> None:
        """Start `python -m module FD`.

        Args:
            module: Reads and writes the socket whose descriptor is its one argument, and exits when it closes.
            env: Added to this process's environment.
            log: File that its output is added to.
        """
        root = str(Path(coharness.__file__).resolve().parent.parent)
        inherited = os.environ.get("PYTHONPATH")
        search = os.pathsep.join([root, *([inherited] if inherited else [])])
        ours, theirs = socket.socketpair()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        try:
            with log.open("ab") as out, theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env={**os.environ, **env, "PYTHONPATH": search},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        """Its id, which is its process group's too."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it still runs."""
        if self._process.returncode is not None:
            return False
        # Not reaped: as long as its number is taken, so is that of its group.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def end(self, grace_s: float) -> None:
        """Hang up, give it `grace_s` to leave, then kill it and what it started; returns when it is gone."""
        if self._process.returncode is not None:
            return
        self.channel.close()
        until = time.monotonic() + grace_s
        while self.is_alive() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> str:
        """The end of its log, on one line."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_TAIL_LINES:])
