"""Attempts 1 to 4, 11 to 13, 23 to 25: processes, memory, signals, the kernel, time."""

from coharness.reward.sandbox.abuse.attempt import Attempt, Goal
from coharness.reward.sandbox.program import Status

_FORKS = """
import os, time
def attack(host):
    made = 0
    for _ in range(60):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            time.sleep(2)
            os._exit(0)
        made += 1
    return f"{made} processes" if made >= 32 else ""
"""
_THREADS = """
import threading, time
def attack(host):
    made = 0
    for _ in range(200):
        try:
            threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        except RuntimeError:
            break
        made += 1
    return f"{made} threads" if made >= 64 else ""
"""
_MEMORY = """
def attack(host):
    kept = []
    for _ in range(64):
        kept.append("x" * 2**25)
    return f"{len(kept) * 32} MiB"
"""
_MANY_MEMORIES = """
import os, time
def attack(host):
    held = 0
    for _ in range(7):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            kept = bytearray(60 * 2**20)
            for page in range(0, len(kept), 4096):
                kept[page] = 1
            time.sleep(0.5)
            os._exit(0)
        held += 60
    return f"{held} MiB in {held // 60} processes" if held > 256 else ""
"""
_SIGNALS = """
import os
def attack(host):
    hit = []
    for target in (host["pid"], -1, os.getppid(), 1):
        try:
            os.kill(target, 0)
        except OSError:
            continue
        # To all: the kernel reports success even where it was allowed to signal nobody.
        if target != -1 or os.getuid() == host["uid"]:
            hit.append(str(target))
    return " ".join(hit)
"""
_LIBC = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
def call(on_x86, on_arm, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(on_x86 if x86 else on_arm, *[ctypes.c_long(a) if type(a) is int else a for a in arguments])
    return result, ctypes.get_errno()
"""
_PTRACE = (
    _LIBC
    + """
def attack(host):
    hit = []
    for target in {host["pid"], os.getppid(), 1}:
        # PTRACE_SEIZE: attaches and stops nobody.
        if call(101, 117, 0x4206, target, 0, 0)[0] == 0:
            hit.append(f"traces {target}")
        kept = ctypes.create_string_buffer(8)
        local = (ctypes.c_size_t * 2)(ctypes.addressof(kept), 8)
        remote = (ctypes.c_size_t * 2)(0x400000, 8)
        result, error = call(310, 270, target, ctypes.addressof(local), 1, ctypes.addressof(remote), 1, 0)
        if result >= 0 or error == 14:  # EFAULT: allowed, the address was merely a guess
            hit.append(f"reads {target}")
    return " ".join(hit)
"""
)
_KERNEL = (
    _LIBC
    + """
def attack(host):
    # EPERM, EACCES and ENOSYS are refusals; any other error comes from inside the call, so that it was let in.
    calls = {
        "io_uring_setup": (425, 425, 1, 0), "bpf": (321, 280, 0, 0, 0), "perf_event_open": (298, 241, 0, 0, -1, -1, 0),
        "keyctl": (250, 219, 0, -3, 0), "add_key": (248, 217, 0, 0, 0, 0, -3), "userfaultfd": (323, 282, 0),
        "mount": (165, 40, 0, 0, 0, 0, 0), "setns": (308, 268, -1, 0), "open_by_handle_at": (304, 265, -1, 0, 0),
        "unshare": (272, 97, 0x10000000), "memfd_create": (319, 279, b"x", 0), "socket": (41, 198, 1, 1, 0),
    }
    let_in = []
    for name, (on_x86, on_arm, *arguments) in calls.items():
        result, error = call(on_x86, on_arm, *arguments)
        if result >= 0 or error not in (1, 13, 38):
            let_in.append(name)
    return " ".join(let_in)
"""
)
_IGNORES_SIGNALS = """
import signal
def attack(host):
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    while True:
        pass
"""
_POWER = "def attack(host):\n    return 9 ** 9 ** 9 % 7\n"
_REGEX = "import re\ndef attack(host):\n    return re.match(r'(?:(a+)+b\\1)+$', 'a' * 60) is None\n"
_SLEEP = "import time\ndef attack(host):\n    time.sleep(100)\n"
_CATCHES = """
def attack(host):
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
"""
_DEEP = "import sys\ndef attack(host):\n    sys.setrecursionlimit(10**9)\n    return attack(host)\n"
_DEEP_IN_C = """
import sys
class Node:
    def __repr__(self):
        return repr([self])
def attack(host):
    sys.setrecursionlimit(10**9)
    return repr(Node())
"""
_DEEP_SYNTAX = "def attack(host):\n    return " + "(" * 150 + "-" * 20_000 + "1" + ")" * 150 + "\n"
_DAEMON = """
import os, time
def attack(host):
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        return ""
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, b"x")
            time.sleep(20)
        os._exit(0)
    # Not before it has left the group, or it would be a race whether it dies with it.
    os.close(writer)
    os.read(reader, 1)
    return ""
"""

ATTEMPTS = (
    Attempt(number=1, name="fork bomb", goal=Goal.REACH, programs=(_FORKS,)),
    Attempt(number=2, name="thread bomb", goal=Goal.REACH, programs=(_THREADS,)),
    Attempt(number=3, name="memory in one process", goal=Goal.REACH, programs=(_MEMORY,)),
    Attempt(number=4, name="memory in many processes", goal=Goal.REACH, programs=(_MANY_MEMORIES,)),
    Attempt(number=11, name="signals to the host", goal=Goal.REACH, programs=(_SIGNALS,)),
    Attempt(number=12, name="tracing or reading another process", goal=Goal.REACH, programs=(_PTRACE,)),
    Attempt(number=13, name="calls into the depths of the kernel", goal=Goal.REACH, programs=(_KERNEL,)),
    Attempt(
        number=23,
        name="endless loops, signals ignored",
        goal=Goal.END,
        programs=(_IGNORES_SIGNALS, _POWER, _REGEX, _SLEEP, _CATCHES),
        statuses=frozenset({Status.TIMEOUT, Status.MEMORY, Status.ERROR}),
    ),
    Attempt(
        number=24,
        name="recursion without end",
        goal=Goal.END,
        programs=(_DEEP, _DEEP_IN_C, _DEEP_SYNTAX),
        statuses=frozenset({Status.CRASHED, Status.MEMORY, Status.ERROR, Status.TIMEOUT}),
    ),
    Attempt(number=25, name="a daemon that stays", goal=Goal.REACH, programs=(_DAEMON,)),
)
