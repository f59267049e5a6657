"""What a battery lays out for attempts to reach: files, sockets, names; and the look around after each attempt."""

import ctypes
import os
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.reward.sandbox.examination import CodeTest
from coharness.reward.sandbox.launchers import guest_mark

_WORD = "zq7-" + "wombat-quince-"
SECRET_TEST = CodeTest(
    entry="attack",
    preamble="",
    reference=f"def attack():\n    return {_WORD + 'marrow'!r}\n",
    test=f"def check(candidate):\n    assert candidate() == {_WORD + 'marrow'!r}\n",
)
"""A task whose answer cannot be guessed, and stands in no program of the battery."""
_IPC_REMOVE = 0
_DYING_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bait:
    """What is laid out."""

    token: str
    folder: Path
    port: int
    shm_key: int

    @property
    def told(self) -> Mapping[str, Any]:
        """What an attempt is told of the host."""
        return {
            "pid": os.getpid(),
            "uid": os.getuid(),
            "token": self.token,
            "secret": str(self.folder / "secret"),
            "open_folder": str(self.folder / "open"),
            "touch": str(self.folder / "open" / "touched"),
            "port": self.port,
            "abstract": self.token,
            "shm_key": self.shm_key,
        }

    def left_behind(self) -> str:
        """What an attempt left on the host, removed on the way; empty where nothing is."""
        deadline = time.monotonic() + _DYING_S
        # The kernel ends the processes of a box a moment after the one that holds it.
        while self._orphans() and time.monotonic() < deadline:
            time.sleep(0.01)
        found = [f"process {pid}" for pid in self._orphans()]
        for pid in self._orphans():
            os.kill(pid, signal.SIGKILL)
        return "; ".join([*found, *self._files(), *self._shared_memory()])

    def _orphans(self) -> list[int]:
        """Guests of this process that lost their parent; those that have one, a sandbox owns and ends."""
        mark, found = guest_mark().encode(), list[int]()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes()
                parent = int((path / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except OSError:
                continue
            if mark in command.split(b"\0") and parent == 1 != os.getpid():
                found.append(int(path.name))
        return found

    def _files(self) -> Iterator[str]:
        places = [Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"), Path.cwd(), Path("/"), self.folder / "open"]
        for folder in places:
            for path in [*folder.glob(f"coharness-*-{self.token}*"), *(folder.glob("touched"))]:
                if path.name != "touched" or folder == self.folder / "open":
                    path.unlink()
                    yield f"file {path.name[:40]} in {folder}"

    def _shared_memory(self) -> Iterator[str]:
        libc = ctypes.CDLL(None, use_errno=True)
        segment = libc.shmget(self.shm_key, 0, 0)
        if segment >= 0:
            libc.shmctl(segment, _IPC_REMOVE, None)
            yield "shared memory"


@contextmanager
def lay_out() -> Iterator[Bait]:
    """Lay the bait out and clear it away."""
    token = secrets.token_hex(8)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coharness-bait-")))
        folder.chmod(0o755)
        (folder / "secret").write_text("the host's secret", encoding="utf-8")
        (folder / "secret").chmod(0o644)
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0" + token)
        abstract.listen(8)
        key = 0x10000000 + secrets.randbelow(0x0FFFFFFF)
        bait = Bait(token=token, folder=folder, port=listener.getsockname()[1], shm_key=key)
        yield bait
        bait.left_behind()
