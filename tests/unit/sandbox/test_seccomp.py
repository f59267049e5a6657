"""The filter, run on an interpreter of its language written for this test: what is refused, allowed, and for whom."""

import struct

import pytest

from coharness.reward.sandbox.guest.seccomp import MACHINES, build_filter

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x50026
PID = 4_242
X86 = {"read": 0, "mmap": 9, "exit_group": 231, "openat": 257, "futex": 202, "socketpair": 53, "getrandom": 318}
ARM = {"read": 63, "mmap": 222, "exit_group": 94, "openat": 56, "futex": 98, "socketpair": 199, "getrandom": 278}
CLONE_THREAD = 0x10000


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would do; after the language's definition (McCanne and Jacobson, 1993)."""
    data = struct.pack("=iIQ", number, MACHINES[machine][0] if architecture is None else architecture, 0)
    data += b"".join(struct.pack("=Q", a & 2**64 - 1) for a in (*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = [struct.unpack_from("=HBBI", raw) for raw in chunks(build_filter(machine, PID))]
    at = accumulator = 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x06:
            return int(constant)
        else:
            holds = {
                0x15: accumulator == constant,
                0x35: accumulator >= constant,
                0x45: bool(accumulator & constant),
            }[operation]
            at += if_true if holds else if_false


def chunks(raw: bytes) -> list[bytes]:
    return [raw[i : i + 8] for i in range(0, len(raw), 8)]


@pytest.mark.parametrize("machine", MACHINES)
def test_what_a_computation_needs_is_allowed(machine: str) -> None:
    names = X86 if machine == "x86_64" else ARM
    assert {name for name, number in names.items() if verdict(machine, number) != ALLOW} == set()


@pytest.mark.parametrize(
    ("on_x86", "on_arm"),
    [(59, 221), (101, 117), (41, 198), (165, 40), (272, 97), (425, 425), (321, 280), (250, 219), (319, 279), (29, 194)],
    ids=["execve", "ptrace", "socket", "mount", "unshare", "io_uring", "bpf", "keyctl", "memfd", "shmget"],
)
def test_what_none_needs_is_refused(on_x86: int, on_arm: int) -> None:
    assert verdict("x86_64", on_x86) == EPERM
    assert verdict("aarch64", on_arm) == EPERM


@pytest.mark.parametrize(("machine", "clone", "clone3"), [("x86_64", 56, 435), ("aarch64", 220, 435)])
def test_threads_are_allowed_and_processes_are_not(machine: str, clone: int, clone3: int) -> None:
    assert verdict(machine, clone, 0x3D0F00 | CLONE_THREAD) == ALLOW
    assert verdict(machine, clone, 17) == EPERM
    assert verdict(machine, clone, 0x10000000 | 17) == EPERM
    assert verdict(machine, clone3) == ENOSYS


@pytest.mark.parametrize(("machine", "kill", "tgkill"), [("x86_64", 62, 234), ("aarch64", 129, 131)])
def test_signals_reach_the_process_itself_alone(machine: str, kill: int, tgkill: int) -> None:
    for number in (kill, tgkill):
        assert verdict(machine, number, PID, 6) == ALLOW
        assert {verdict(machine, number, target, 6) for target in (-1, 0, 1, PID + 1)} == {EPERM}


@pytest.mark.parametrize(("machine", "prlimit"), [("x86_64", 302), ("aarch64", 261)])
def test_limits_of_others_cannot_be_touched(machine: str, prlimit: int) -> None:
    assert verdict(machine, prlimit, 0) == verdict(machine, prlimit, PID) == ALLOW
    assert verdict(machine, prlimit, 1) == EPERM


@pytest.mark.parametrize(("machine", "ioctl"), [("x86_64", 16), ("aarch64", 29)])
def test_nothing_is_typed_into_the_terminal_of_the_host(machine: str, ioctl: int) -> None:
    assert verdict(machine, ioctl, 0, 0x5412) == verdict(machine, ioctl, 0, 0x541C) == EPERM
    assert verdict(machine, ioctl, 0, 0x5401) == ALLOW


def test_calls_of_another_architecture_end_the_process() -> None:
    assert verdict("x86_64", 0, architecture=0x40000003) == KILL
    assert verdict("aarch64", 63, architecture=MACHINES["x86_64"][0]) == KILL


def test_the_second_numbering_of_x86_is_closed() -> None:
    assert verdict("x86_64", 0x40000000 + 520) == ENOSYS
    assert verdict("x86_64", -1) == ENOSYS


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(KeyError, match="riscv64"):
        build_filter("riscv64", PID)
