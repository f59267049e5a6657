"""The host's side of a process layer: starts guests ahead of time, gives each one program, and decides how it ended.

    spares: guest guest        run(program): spare ─ program ─▶ guest ─ frames ─▶ host ─ kill ─▶ outcome
              ▲                                 └── a new spare is started meanwhile ──┘

Invariants: a guest sees one program and is killed afterwards, whatever it did; clock, processor time and memory are read by
the host; only well-formed frames with the program's nonce, in order, count, and a guest that sends anything else has tried
to forge and is answered with `policy`. One thread at a time drives a layer.
"""

import json
import logging
import os
import secrets
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from typing import Any

from coharness.reward.sandbox.guest import plain
from coharness.reward.sandbox.launchers import Launcher
from coharness.reward.sandbox.program import (
    CallResult,
    Layer,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    Status,
    Usage,
    conclude,
    printable,
)

logger = logging.getLogger(__name__)

START_S = 30.0
"""Deadline of a guest's start, for machines that are very busy."""
_TAIL_BYTES = 4_096
_CHUNK = 2**16
_EXIT_S = 0.5
_STATUS_OF_SIGNAL = {
    signal.SIGXCPU: Status.TIMEOUT,
    signal.SIGSYS: Status.POLICY,
    signal.SIGXFSZ: Status.OUTPUT_LIMIT,
}


class _StartFailed(Exception):
    """The guest did not get as far as the program."""


class _Ended(Exception):
    """The program must end now."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class ProcessLayer:
    """Runs programs in guests that one launcher starts; satisfies `ladder.LayerRunner`."""

    def __init__(self, launcher: Launcher, *, spares: int = 1) -> None:
        """`spares` guests are kept started; 0 starts each when it is needed."""
        self._launcher = launcher
        self._num_spares = spares
        self._spares: list[_Guest] = []
        self._spares_for: Limits | None = None

    @property
    def layer(self) -> Layer:
        """The layer."""
        return self._launcher.layer

    def absent(self) -> str | None:
        """Why this layer cannot even be tried here."""
        return self._launcher.absent()

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run one program; never raises for what the program does."""
        try:
            guest = self._take(limits)
        except (_StartFailed, OSError) as error:
            return Outcome(status=Status.INFRA, layer=self.layer, detail=f"{self.layer}: {error}")
        try:
            self._refill(limits)
            return guest.run(program, limits)
        except (_StartFailed, OSError) as error:
            return Outcome(status=Status.INFRA, layer=self.layer, detail=f"{self.layer}: {error}")
        finally:
            guest.kill()

    def _take(self, limits: Limits) -> "_Guest":
        if self._spares_for != limits:
            self.close()
            self._spares_for = limits
        while self._spares:
            guest = self._spares.pop(0)
            if guest.is_alive():
                return guest
            # It died while it waited: with the thread that started it, or by the machine's memory running out.
            logger.info("%s: a waiting guest has died", self.layer)
            guest.kill()
        return _Guest(self._launcher, limits)

    def _refill(self, limits: Limits) -> None:
        while len(self._spares) < self._num_spares:
            self._spares.append(_Guest(self._launcher, limits))

    def close(self) -> None:
        """End all spare guests."""
        while self._spares:
            self._spares.pop().kill()


@dataclass(slots=True)
class _Reading:
    """What has come from a guest so far."""

    nonce: str
    num_calls: int
    has_started: bool = False
    is_done: bool = False
    load_error: Raised | None = None
    results: list[CallResult] = field(default_factory=list)
    reply: list[bytes] = field(default_factory=list)
    "Pieces of the frame that is not yet whole."
    num_reply_bytes: int = 0
    num_output_bytes: int = 0
    tails: dict[str, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})

    def take_reply(self, chunk: bytes, limits: Limits) -> None:
        self.num_reply_bytes += len(chunk)
        if self.num_reply_bytes > limits.value_bytes:
            raise _Ended(Status.OUTPUT_LIMIT, f"more than {limits.value_bytes} bytes of values")
        first, *others = chunk.split(b"\n")
        self.reply.append(first)
        for piece in others:
            self._take_frame(b"".join(self.reply))
            self.reply = [piece]

    def _take_frame(self, line: bytes) -> None:
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _Ended(Status.POLICY, "wrote to the channel of its host") from error
        forged = _Ended(Status.POLICY, "sent a frame that is not the next one")
        if not isinstance(frame, dict) or frame.get("n") != self.nonce or self.is_done:
            raise forged
        ended = self.load_error is not None or len(self.results) == self.num_calls
        match frame:
            case {"k": "started"} if not self.has_started:
                self.has_started = True
            case {"k": "value", "i": int(index), "v": value} if self._expects(index):
                self.results.append(_plain_result(value))
            case {"k": "raised", "i": int(index), "error": str(name), "detail": str(detail)} if self._expects(index):
                self.results.append(Raised(error=name[:80], detail=detail[:300]))
            case {"k": "load", "error": str(name), "detail": str(detail)} if self.has_started and not self.results:
                self.load_error = Raised(error=name[:80], detail=detail[:300])
            case {"k": "done"} if self.has_started and ended:
                self.is_done = True
            case _:
                raise forged

    def _expects(self, index: int) -> bool:
        return self.has_started and self.load_error is None and index == len(self.results) < self.num_calls

    def take_output(self, name: str, chunk: bytes, limits: Limits) -> None:
        self.num_output_bytes += len(chunk)
        self.tails[name] = (self.tails[name] + chunk)[-_TAIL_BYTES:]
        if self.num_output_bytes > limits.output_bytes:
            raise _Ended(Status.OUTPUT_LIMIT, f"printed more than {limits.output_bytes} bytes")


def _plain_result(value: Any) -> CallResult:
    try:
        return Returned(value=plain.decode(value))
    except ValueError as error:
        return Raised(error="NotPlain", detail=str(error)[:300])


class _Guest:
    """One process that waits for a program."""

    def __init__(self, launcher: Launcher, limits: Limits) -> None:
        self._layer = launcher.layer
        self._nonce = secrets.token_hex(16)
        request, self._request = os.pipe()
        self._reply, reply = os.pipe()
        try:
            launch = launcher.launch(request, reply, limits)
            self._process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(request, reply),
                env=dict(launch.environment),
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(self._request)
            os.close(self._reply)
            raise
        finally:
            os.close(request)
            os.close(reply)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._outputs = {"stdout": self._process.stdout, "stderr": self._process.stderr}
        try:
            os.write(self._request, json.dumps({**launch.setup, "nonce": self._nonce}).encode() + b"\n")
        except BrokenPipeError:
            logger.debug("%s: a guest ended at once; what it said is read when it is needed", self._layer)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, program: Program, limits: Limits) -> Outcome:
        self._wait_until_ready()
        cpu_before = self._usage().cpu_s or 0.0
        nonce = secrets.token_hex(16)
        calls = [[plain.encode(call.args), plain.encode(dict(call.kwargs))] for call in program.calls]
        line = json.dumps({"nonce": nonce, "code": program.code, "entry": program.entry, "calls": calls})
        num_calls = 1 if program.entry is None else len(program.calls)
        reading = _Reading(nonce=nonce, num_calls=num_calls)
        began = time.monotonic()
        ended: _Ended | None = None
        try:
            began = self._converse(line.encode() + b"\n", reading, limits)
        except _Ended as error:
            ended = error
        wall_s = time.monotonic() - began
        usage = self._usage()
        cpu_s = None if usage.cpu_s is None else max(0.0, usage.cpu_s - cpu_before)
        usage = replace(usage, wall_s=wall_s, cpu_s=cpu_s)
        if ended is None and not reading.is_done:
            ended = self._how_it_died()
        self.kill()
        return self._outcome(reading, ended, usage)

    def _wait_until_ready(self) -> None:
        """Read the first frame, which comes before there is any foreign code."""
        deadline, buffer = time.monotonic() + START_S, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._reply, selectors.EVENT_READ)
            while b"\n" not in buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise _StartFailed(f"a guest did not start within {START_S:.0f} s")
                chunk = os.read(self._reply, _CHUNK)
                if not chunk:
                    self._process.wait(timeout=START_S)
                    said = printable(os.read(self._outputs["stderr"].fileno(), _TAIL_BYTES)).strip()
                    raise _StartFailed(said.splitlines()[-1] if said else "a guest ended while it started")
                buffer += chunk
        frame = json.loads(buffer)
        if frame.get("n") != self._nonce or frame.get("k") != "ready":
            raise _StartFailed(str(frame.get("detail", "a guest did not lock itself in")))

    def _converse(self, data: bytes, reading: _Reading, limits: Limits) -> float:
        """Send the program and read until it is done or its channel closes; gives the time at which it started.

        Raises:
            _Ended: its time ran out, or it wrote too much or what it must not.
        """
        began = time.monotonic()
        deadline = began + START_S
        os.set_blocking(self._request, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._request, selectors.EVENT_WRITE, "request")
            selector.register(self._reply, selectors.EVENT_READ, "reply")
            for name, pipe in self._outputs.items():
                selector.register(pipe, selectors.EVENT_READ, name)
            while not reading.is_done:
                events = selector.select(max(0.0, deadline - time.monotonic()))
                # The clock is looked at each time: a guest that writes without end always has something to read.
                if time.monotonic() >= deadline:
                    if not reading.has_started:
                        raise _StartFailed(f"a guest did not take its program within {START_S:.0f} s")
                    raise _Ended(Status.TIMEOUT, f"ran longer than {limits.timeout_s:g} s")
                for key, _ in events:
                    if key.data == "request":
                        data = data[os.write(self._request, data[:_CHUNK]) :]
                        if not data:
                            selector.unregister(self._request)
                        continue
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        if key.data == "reply":
                            self._drain(reading, limits)
                            if not reading.has_started:
                                raise _StartFailed("a guest ended before it took its program")
                            return began
                        selector.unregister(key.fileobj)
                    elif key.data == "reply":
                        waited = not reading.has_started
                        reading.take_reply(chunk, limits)
                        if waited and reading.has_started:
                            began = time.monotonic()
                            deadline = began + limits.timeout_s
                    else:
                        reading.take_output(key.data, chunk, limits)
        self._drain(reading, limits)
        return began

    def _drain(self, reading: _Reading, limits: Limits) -> None:
        """What was printed and not yet read; a program's end and its last words race."""
        for name, pipe in self._outputs.items():
            os.set_blocking(pipe.fileno(), False)
            try:
                chunk = os.read(pipe.fileno(), _CHUNK)
            except BlockingIOError:
                continue
            if chunk:
                reading.take_output(name, chunk, limits)

    def _how_it_died(self) -> _Ended:
        try:
            code = self._process.wait(timeout=_EXIT_S)
        except subprocess.TimeoutExpired:
            return _Ended(Status.CRASHED, "closed its channel")
        # bubblewrap reports a signal of its child as 128 and the number.
        number = -code if code < 0 else code - 128
        if number in signal.valid_signals():
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            status = _STATUS_OF_SIGNAL.get(signal.Signals(number)) if number in set(signal.Signals) else None
            return _Ended(status or Status.CRASHED, f"ended by {name}")
        return _Ended(Status.CRASHED, f"its process ended with code {code} before all calls were answered")

    def _usage(self) -> Usage:
        """Processor time and memory of the guest, read from outside while it is still there."""
        pid = self._process.pid
        # bubblewrap stands above its first process, which stands above the guest.
        for _ in range(2 if self._layer is Layer.BUBBLEWRAP else 0):
            child = _only_child(pid)
            pid = pid if child is None else child
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                peak = next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), None)
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                numbers = file.read().rpartition(")")[2].split()
        except OSError:
            return Usage(wall_s=0.0)
        ticks = int(numbers[11]) + int(numbers[12])
        return Usage(wall_s=0.0, cpu_s=ticks / os.sysconf("SC_CLK_TCK"), memory_bytes=peak)

    def _outcome(self, reading: _Reading, ended: _Ended | None, usage: Usage) -> Outcome:
        results = tuple(reading.results)
        if ended is not None:
            status, error, detail = ended.status, "", ended.detail
            if status is Status.POLICY:
                # Frames that came before the forged one may have been forged as well.
                results = ()
        elif reading.load_error is not None:
            status, error, detail = conclude((reading.load_error,), 1)
        else:
            status, error, detail = conclude(results, reading.num_calls)
        return Outcome(
            status=status,
            layer=self._layer,
            results=results,
            error=error,
            detail=detail,
            stdout_tail=printable(reading.tails["stdout"]),
            stderr_tail=printable(reading.tails["stderr"]),
            usage=usage,
        )

    def kill(self) -> None:
        """End it and all that it started; may be called again."""
        if self._process.poll() is None:
            # It leads a group of its own and has not been waited for, so the number still means this group.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in self._outputs.values():
            pipe.close()
        for name in ("_request", "_reply"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)


def _only_child(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
    except OSError:
        return None
    return int(children[0]) if len(children) == 1 else None
