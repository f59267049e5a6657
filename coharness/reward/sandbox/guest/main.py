"""The program of a guest: locks itself in, then runs one foreign program and says what it returned.

    host ── setup ──▶ lock ── ready ──▶ host ── program ──▶ started, one frame a call, done ──▶ host

Frames are JSON lines on a descriptor of their own, each with the nonce that came with the program. The nonce keeps what
foreign code prints blindly from being taken for a frame; it is no secret to code that searches its own process, and need not
be: nothing in the guest knows what would be right. Everything that foreign code may disturb comes after the lock.
"""

import builtins
import ctypes
import json
import os
import platform
import resource
import sys
from typing import Any

from . import landlock, plain, seccomp

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_DETAIL_CHARS = 300


def main(request: int, reply: int) -> None:
    """Serve one program: `request` and `reply` are descriptors."""
    incoming = _Lines(request)
    setup = json.loads(incoming.next())
    try:
        lock(setup)
    except OSError as error:
        _send(reply, {"n": setup["nonce"], "k": "refused", "detail": str(error)})
        os._exit(0)
    _send(reply, {"n": setup["nonce"], "k": "ready"})
    line = incoming.next()
    if line:
        program = json.loads(line)
        _send(reply, {"n": program["nonce"], "k": "started"})
        run(program, reply)
        _flush()
        _send(reply, {"n": program["nonce"], "k": "done"})
    # The host measures what was used while the process is still there, and then kills it.
    os.read(request, 1)
    os._exit(0)


def lock(setup: dict[str, Any]) -> None:
    """Give up everything that `setup` does not leave; cannot be undone.

    Raises:
        OSError: something that must be given up could not be.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    machine, pid = platform.machine(), os.getpid()
    uid = setup["uid"]
    if uid is not None:
        # While it is root the limit on processes does not bind, and limits could be raised again.
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if os.geteuid() == 0 or os.getuid() == 0:
        raise OSError("a guest never runs as root")
    if setup["die_with_parent"] and libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the guest would outlive its host")
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "new privileges could not be given up")
    if setup["readable"] is not None:
        landlock.restrict(libc, setup["readable"])
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: setup["cpu_s"],
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_AS: setup["memory_bytes"],
    }
    if setup["num_threads"] is not None:
        limits[resource.RLIMIT_NPROC] = setup["num_threads"]
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))
    if setup["seccomp"]:
        seccomp.install(libc, machine, pid)


def run(program: dict[str, Any], reply: int) -> None:
    """Load the code and make the calls; one frame each."""
    nonce, entry = program["nonce"], program["entry"]
    namespace: dict[str, Any] = {"__name__": "__candidate__", "__builtins__": builtins}
    # Foreign code may raise anything at all, SystemExit and KeyboardInterrupt included; each of it is a result.
    try:
        if entry is None:
            value = eval(compile(program["code"].strip(), "<candidate>", "eval"), namespace)
            _send(reply, {"n": nonce, "k": "value", "i": 0, "v": plain.encode(value)})
            return
        exec(compile(program["code"], "<candidate>", "exec"), namespace)
        if entry not in namespace:
            raise NameError(f"the code defines no {entry}")
    except BaseException as error:
        _send(reply, {"n": nonce, "k": "load", **_describe(error)})
        return
    for index, (args, kwargs) in enumerate(program["calls"]):
        try:
            value = namespace[entry](*plain.decode(args), **plain.decode(kwargs))
            frame = {"k": "value", "v": plain.encode(value)}
        except BaseException as error:
            frame = {"k": "raised", **_describe(error)}
        _send(reply, {"n": nonce, "i": index, **frame})


def _describe(error: BaseException) -> dict[str, str]:
    name = type(error).__name__
    try:
        detail = str(error)[:_DETAIL_CHARS]
    except BaseException:
        detail = "its message cannot be read"
    return {"error": name if type(name) is str else "Exception", "detail": detail}


def _flush() -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        # Foreign code closed or replaced them; what it printed is lost, which is its own affair.
        return


def _send(descriptor: int, frame: dict[str, Any]) -> None:
    data = memoryview(json.dumps(frame, separators=(",", ":")).encode() + b"\n")
    while data:
        data = data[os.write(descriptor, data) :]


class _Lines:
    """Lines of a descriptor, read as they are needed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def next(self) -> bytes:
        while b"\n" not in self._buffer:
            chunk = os.read(self._descriptor, 2**16)
            if not chunk:
                return b""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
