"""Guests: one program each, ended whatever it does, measured from outside, and never believed."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from coharness.reward.sandbox import Call, Limits, Outcome, Program, Raised, Returned, Status
from coharness.reward.sandbox.ladder import LayerRunner
from coharness.reward.sandbox.launchers import Launch, UnsafeLauncher
from coharness.reward.sandbox.process import ProcessLayer
from coharness.reward.sandbox.program import Layer, printable

LIMITS = Limits(timeout_s=2.0)


def run(layer: LayerRunner, code: str, *arguments: Any, limits: Limits = LIMITS) -> Outcome:
    return layer.run(Program(code=code, entry="f", calls=(Call(args=arguments),)), limits)


def test_values_come_back_in_the_order_of_the_calls(guests: LayerRunner) -> None:
    calls = tuple(Call(args=(k,), kwargs={"y": (k, {k})}) for k in range(100))
    outcome = guests.run(Program(code="def f(x, y):\n    return [x, y, 2**70 + x]", entry="f", calls=calls), LIMITS)
    assert outcome.status is Status.OK
    assert outcome.results == tuple(Returned(value=[k, (k, {k}), 2**70 + k]) for k in range(100))


def test_more_than_a_pipe_holds_goes_in_and_out(guests: LayerRunner) -> None:
    text = "ä" * 200_000
    assert run(guests, "def f(x):\n    return x + x", text).results == (Returned(value=text + text),)


def test_an_expression_has_a_value(guests: LayerRunner) -> None:
    assert guests.run(Program(code="\n [x * x for x in (1, 2)] "), LIMITS).results == (Returned(value=[1, 4]),)


def test_nothing_is_left_of_an_earlier_program(guests: LayerRunner) -> None:
    assert run(guests, "import builtins\nbuiltins.kept = 1\ndef f():\n    return kept").status is Status.OK
    assert run(guests, "def f():\n    return kept").error == "NameError"


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("def f():\n    return 1 / 0", Status.ERROR, "ZeroDivisionError"),
        ("def f(:", Status.ERROR, "SyntaxError"),
        ("def g():\n    return 1", Status.ERROR, "NameError"),
        ("f = 3", Status.ERROR, "TypeError"),
        ("import nowhere\ndef f():\n    return 1", Status.ERROR, "ModuleNotFoundError"),
        ("def f():\n    return object()", Status.ERROR, "NotPlain"),
        ("def f():\n    raise KeyboardInterrupt", Status.ERROR, "KeyboardInterrupt"),
        ("class E(Exception):\n    def __str__(self):\n        raise self\ndef f():\n    raise E", Status.ERROR, "E"),
        ("def f():\n    return 'x' * 10**9", Status.MEMORY, "MemoryError"),
        ("def f():\n    while True:\n        pass", Status.TIMEOUT, ""),
        ("def f():\n    while True:\n        print('x' * 65536)", Status.OUTPUT_LIMIT, ""),
        ("def f():\n    return 'x' * 5_000_000", Status.OUTPUT_LIMIT, ""),
        ("def f():\n    return open('/etc/shadow')", None, None),
        ("import os\ndef f():\n    os.fork()", Status.POLICY, "PermissionError"),
        ("import socket\ndef f():\n    socket.socket()", Status.POLICY, "PermissionError"),
        ("import subprocess\ndef f():\n    subprocess.run(['true'])", Status.POLICY, "PermissionError"),
        ("import os\ndef f():\n    os._exit(0)", Status.CRASHED, ""),
        ("import os\ndef f():\n    os.abort()", Status.CRASHED, ""),
        ("import ctypes\ndef f():\n    ctypes.string_at(0)", Status.CRASHED, ""),
        ("import os\nos._exit(0)", Status.CRASHED, ""),
        ("import os\ndef f():\n    os.closerange(3, 65536)", Status.CRASHED, ""),
    ],
)
def test_each_end_has_its_status(guests: LayerRunner, code: str, status: Status | None, error: str | None) -> None:
    outcome = run(guests, code, limits=Limits(timeout_s=2.0, memory_bytes=128 * 2**20))
    if status is None:
        assert outcome.status in (Status.ERROR, Status.POLICY)
        assert outcome.error in ("FileNotFoundError", "PermissionError")
    else:
        assert (outcome.status, outcome.error) == (status, error), outcome


def test_calls_answered_before_the_end_are_kept(guests: LayerRunner) -> None:
    calls = tuple(Call(args=(k,)) for k in range(4))
    code = "import os\ndef f(x):\n    return x if x < 2 else os._exit(0)"
    outcome = guests.run(Program(code=code, entry="f", calls=calls), LIMITS)
    assert (outcome.status, outcome.results) == (Status.CRASHED, (Returned(value=0), Returned(value=1)))


def test_frames_out_of_turn_cost_all_results(guests: LayerRunner) -> None:
    code = (
        "import json, os, sys\ndef f(x):\n    frame = sys._getframe(1)\n"
        "    line = json.dumps({'n': frame.f_locals['nonce'], 'i': x, 'k': 'value', 'v': 99})\n"
        "    os.write(frame.f_locals['reply'], line.encode() + b'\\n')\n    return 1\n"
    )
    calls = (Call(args=(0,)), Call(args=(1,)))
    outcome = guests.run(Program(code=code, entry="f", calls=calls), LIMITS)
    assert (outcome.status, outcome.results) == (Status.POLICY, ())


def test_what_is_printed_is_kept_and_is_no_result(guests: LayerRunner) -> None:
    outcome = run(guests, "import sys\ndef f():\n    print('out\\x1b[31m')\n    sys.stderr.write('err')\n    return 1")
    assert (outcome.stdout_tail, outcome.stderr_tail) == ("out\\x1b[31m\n", "err")
    tail = run(guests, "def f():\n    print('x' * 100_000 + 'end')").stdout_tail
    assert (len(tail), tail[-4:]) == (4_096, "end\n")


def test_usage_is_measured_by_the_host(guests: LayerRunner) -> None:
    code = (
        "import time\nkept = 'x' * 40_000_000\ndef f():\n    end = time.process_time() + 0.3\n"
        "    while time.process_time() < end:\n        pass\n    time.process_time = time.time = lambda: 0.0\n"
    )
    usage = run(guests, code, limits=Limits(timeout_s=30.0)).usage
    assert usage.wall_s >= 0.3
    assert usage.cpu_s is not None
    assert usage.memory_bytes is not None
    assert usage.cpu_s >= 0.2
    assert 40_000_000 < usage.memory_bytes < 120_000_000


def test_a_guest_has_no_rights_and_no_root(guests: LayerRunner) -> None:
    code = (
        "import os, sys, resource\ndef f():\n    return [os.getuid(), os.geteuid(), os.getgroups(), sorted(os.environ),"
        " sys.flags.isolated, sys.flags.no_site, resource.getrlimit(resource.RLIMIT_CORE),"
        " resource.getrlimit(resource.RLIMIT_FSIZE)]"
    )
    (result,) = run(guests, code).results
    assert isinstance(result, Returned)
    uid, effective, groups, environment, *flags, core, size = result.value
    assert uid == effective != 0
    assert uid != 0
    assert 0 not in groups
    assert set(environment) <= {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PWD", "LC_CTYPE"}
    assert flags == [1, 1]
    assert core == size == (0, 0)


def test_a_spare_that_died_is_replaced(guests: LayerRunner) -> None:
    assert isinstance(guests, ProcessLayer)
    assert run(guests, "def f():\n    return 1").status is Status.OK
    (spare,) = guests._spares
    spare._process.kill()
    spare._process.wait()
    assert run(guests, "def f():\n    return 1").status is Status.OK


def test_other_limits_get_other_guests(guests: LayerRunner) -> None:
    code = "import resource\ndef f():\n    return resource.getrlimit(resource.RLIMIT_AS)"
    for memory in (96 * 2**20, 200 * 2**20):
        assert run(guests, code, limits=Limits(memory_bytes=memory)).results == (Returned(value=(memory, memory)),)


def test_nothing_runs_after_it_is_closed(guests: LayerRunner) -> None:
    assert isinstance(guests, ProcessLayer)
    run(guests, "def f():\n    return 1")
    pids = [spare._process.pid for spare in guests._spares]
    assert pids
    guests.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(os.listdir("/proc/self/fd")) < 200


class Broken(UnsafeLauncher):
    """A launcher whose guests do not start."""

    layer = Layer.UNSAFE

    def __init__(self, *command: str) -> None:
        self._command = command

    def launch(self, request: int, reply: int, limits: Limits) -> Launch:
        return Launch(command=self._command, environment={}, setup={})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/bin/sh", "-c", "echo 'Permission denied' >&2; exit 1"), "Permission denied"),
        (("/bin/sh", "-c", "exit 0"), "a guest ended while it started"),
        (("/nowhere/python",), "No such file"),
    ],
)
def test_a_guest_that_does_not_start_is_infrastructure_and_no_result(command: tuple[str, ...], said: str) -> None:
    layer = ProcessLayer(Broken(*command), spares=0)
    outcome = run(layer, "def f():\n    return 1")
    assert (outcome.status, outcome.results) == (Status.INFRA, ())
    assert said in outcome.detail
    layer.close()


def test_descriptors_are_given_back_whatever_happens(guests: LayerRunner) -> None:
    guests.close()
    before = len(os.listdir("/proc/self/fd"))
    for code in ("def f():\n    return 1", "import os\ndef f():\n    os._exit(1)", "def f(:"):
        run(guests, code)
    guests.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_guest_outlives_no_timeout(guests: LayerRunner) -> None:
    began = time.monotonic()
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef f():\n    while True:\n        pass"
    assert run(guests, code, limits=Limits(timeout_s=0.2)).status is Status.TIMEOUT
    assert time.monotonic() - began < 60.0


def test_text_is_escaped_where_it_would_act() -> None:
    assert printable(b"a\n\tb\x00\x1b\xff") == "a\n\tb\\x00\\x1b\\xff"
    assert printable("\u202e\u2028é".encode()) == "\\u202e\\u2028é"


def test_a_call_that_raised_is_told_apart_from_its_value(guests: LayerRunner) -> None:
    (result,) = run(guests, "def f():\n    raise ValueError('x' * 9_999)").results
    assert isinstance(result, Raised)
    assert (result.error, len(result.detail)) == ("ValueError", 300)
