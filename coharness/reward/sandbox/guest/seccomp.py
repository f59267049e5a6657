"""A seccomp filter for a guest that has started: one process, no network, nothing that administers a machine.

Written as classic BPF by hand, so that no library is needed (the format is Linux's `struct seccomp_data`; Drewry, 2012).
A list of refusals, not of permissions: CPython and libc use different calls from release to release, and what is refused
here is what no single-process computation needs. Refused calls fail with EPERM, which Python shows as PermissionError, so
that a program sees an error instead of dying; `clone3`, whose flags a filter cannot read, fails with ENOSYS and libc falls
back to `clone`, which may make threads and nothing else.
"""

import ctypes
import os
import struct

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine -> audit architecture, and column of `_REFUSED`."""

# Name: number on x86_64, number on aarch64 (None where the call does not exist there).
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    # namespaces and file systems
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "mknod": (133, None), "mknodat": (259, 33),
    # memory that outlives a process or escapes its limits
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    # network, and what goes around this filter
    "socket": (41, 198), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # the kernel
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "syslog": (103, 116), "acct": (163, 89), "personality": (135, 92), "modify_ldt": (154, None), "iopl": (172, None),
    "ioperm": (173, None), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}  # fmt: skip
_CLONE, _CLONE3, _IOCTL = (56, 220), (435, 435), (16, 29)
_TO_ITSELF_ALONE = {"kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261)}
_CLONE_THREAD = 0x10000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX write into the terminal that the host was started from.
_X32 = 0x40000000

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050001, 0x00050026
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""


def build_filter(machine: str, pid: int) -> bytes:
    """The filter for a process `pid` (its number in its own namespace), as an array of `struct sock_filter`.

    Raises:
        KeyError: there are no call numbers for this machine.
    """
    architecture, column = MACHINES[machine]
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        # The x32 calls have numbers of their own, and would walk past every comparison below.
        code += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ENOSYS)]
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    code += [(_JUMP_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ENOSYS)]
    code += _when(_CLONE[column], 0, [(_JUMP_ANY_BIT, 0, 1, _CLONE_THREAD), (_RETURN, 0, 0, _ALLOW)], _EPERM)
    tests = [test for request in _TERMINAL_INPUT for test in ((_JUMP_EQUAL, 0, 1, request), (_RETURN, 0, 0, _EPERM))]
    code += _when(_IOCTL[column], 1, tests, _ALLOW)
    for name, numbers in _TO_ITSELF_ALONE.items():
        itself = [pid, 0] if name == "prlimit64" else [pid]
        tests = [test for target in itself for test in ((_JUMP_EQUAL, 0, 1, target), (_RETURN, 0, 0, _ALLOW))]
        code += _when(numbers[column], 0, tests, _EPERM)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _when(number: int, argument: int, tests: list[Instruction], otherwise: int) -> list[Instruction]:
    """For the call `number`: `tests` on the low half of an argument, which return or fall through to `otherwise`."""
    body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *tests, (_RETURN, 0, 0, otherwise)]
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(libc: ctypes.CDLL, machine: str, pid: int) -> None:
    """Put the filter on this process, for good; the process must have given up new privileges before.

    Raises:
        OSError: the kernel refused.
    """
    code = build_filter(machine, pid)
    program = _Program(len(code) // 8, code)
    if libc.prctl(22, 2, ctypes.byref(program), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
