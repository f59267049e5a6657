"""Landlock (Salaün, 2021; Linux 5.13): from here on this process can read a few folders, and write nowhere.

Opening is restricted, metadata is not: a guest can still learn that a file exists where its uid may look.
"""

import ctypes
import os
import struct

MIN_ABI = 3
"""The first version that restricts truncation as well (Linux 6.2)."""
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_RIGHTS = {3: 15, 4: 15, 5: 16}
"""ABI -> number of rights on files it knows; later ones know as many as 5."""
_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets and signals, since ABI 6."""


def abi(libc: ctypes.CDLL) -> int:
    """The version that this kernel speaks; 0 where Landlock is absent or off."""
    return max(0, int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1)))


def restrict(libc: ctypes.CDLL, readable: list[str]) -> None:
    """Allow reading below `readable` (what does not exist is left out) and nothing else, for good.

    Raises:
        OSError: the kernel is too old or refused.
    """
    version = abi(libc)
    if version < MIN_ABI:
        raise OSError(f"Landlock ABI {version} is older than {MIN_ABI}")
    files = (1 << _RIGHTS.get(version, 16)) - 1
    attributes = struct.pack("=QQQ", files, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0)
    _check(ruleset)
    for path in readable:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rights = _READ_FILE | _READ_FOLDER if os.path.isdir(path) else _READ_FILE
        _check(libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0))
        os.close(descriptor)
    _check(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
