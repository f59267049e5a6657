"""What goes into a sandbox and what comes out of it: plain records, the same for every layer.

Invariants: a `Program` holds nothing that decides whether it is right (no expected value, no test); an `Outcome` says what
happened, never that something is right. An exit status or printed text is no result: only values that came back over the
guest's own channel are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Layer(StrEnum):
    """Where a program ran."""

    LITERAL = "literal"
    "Nowhere: the text was a literal or plain arithmetic, evaluated by a reader of our own."
    MONTY = "monty"
    "An interpreter of a Python subset without files, processes or network, in a worker process (pydantic-monty)."
    BUBBLEWRAP = "bubblewrap"
    "CPython in namespaces of its own, under an unprivileged uid, with a seccomp filter."
    LANDLOCK = "landlock"
    "CPython without namespaces, where those are refused: Landlock, a seccomp filter, an unprivileged uid."
    UNSAFE = "unsafe"
    "CPython as a plain child process with resource limits alone. Contains accidents, not attacks."


class Status(StrEnum):
    """How a program ended."""

    OK = "ok"
    "Every call came back with a plain value."
    ERROR = "error"
    "Loading or some call raised, or a value was not plain."
    TIMEOUT = "timeout"
    "The wall clock of the host, or the limit of CPU time, ran out."
    MEMORY = "memory"
    "It asked for more memory than it may have."
    OUTPUT_LIMIT = "output_limit"
    "It wrote more than it may."
    POLICY = "policy"
    "It tried something that is forbidden and ended by that, or spoke over the channel that is not its own."
    CRASHED = "crashed"
    "Its process ended by itself before all calls were answered."
    UNSUPPORTED = "unsupported"
    "This layer cannot run it; another may."
    INFRA = "infra"
    "The sandbox itself failed: may be tried again, says nothing about the program, is never a reward."


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use."""

    timeout_s: float = 5.0
    "Wall clock from the moment its code is loaded, over all calls."
    memory_bytes: int = 256 * 2**20
    "Address space of a process; heap in Monty. A guest has one process."
    output_bytes: int = 2**20
    "Of standard output and standard error together; more ends the program."
    value_bytes: int = 4 * 2**20
    "Of all returned values, encoded; more ends the program."
    num_threads: int = 16

    def __post_init__(self) -> None:
        for name in ("timeout_s", "memory_bytes", "output_bytes", "value_bytes", "num_threads"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Limits.{name} must be above 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a program's entry point; arguments are plain values (`guest.plain`)."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Code and what to ask of it."""

    code: str
    entry: str | None = None
    "The function that is called; None asks for the value of `code` itself, which is then one expression."
    calls: tuple[Call, ...] = ()

    def __post_init__(self) -> None:
        if self.entry is not None and not self.entry.isidentifier():
            raise ValueError(f"Program.entry is the name of a function, got {self.entry!r:.80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A call's plain value."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A call that gave no plain value."""

    error: str
    "Name of the exception's type, or NotPlain."
    detail: str = ""


CallResult = Returned | Raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a program used, measured by the host; None where a layer cannot tell."""

    wall_s: float
    cpu_s: float | None = None
    memory_bytes: int | None = None
    "Largest resident set."


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended, in which layer, with what."""

    status: Status
    layer: Layer
    results: tuple[CallResult, ...] = ()
    "In the order of the calls; shorter where the program ended before it answered all."
    error: str = ""
    "Type of the first exception; empty where none is known."
    detail: str = ""
    stdout_tail: str = ""
    "Last 4 KiB, control characters escaped."
    stderr_tail: str = ""
    usage: Usage = Usage(wall_s=0.0)


def conclude(results: tuple[CallResult, ...], num_calls: int) -> tuple[Status, str, str]:
    """Status, error and detail of a program that ran to its end with these results."""
    first = next((result for result in results if isinstance(result, Raised)), None)
    if first is not None:
        special = {"MemoryError": Status.MEMORY, "PermissionError": Status.POLICY}
        return special.get(first.error, Status.ERROR), first.error, first.detail
    if len(results) != num_calls:
        return Status.CRASHED, "", f"{len(results)} of {num_calls} calls were answered"
    return Status.OK, "", ""


def printable(raw: bytes) -> str:
    r"""Text that is safe to store and show: what is no UTF-8, and all that does not print but line ends and tabs, as `\x..`."""
    text = raw.decode("utf-8", errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(ord(c)) for c in text)


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
