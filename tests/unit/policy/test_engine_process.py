"""A process of ours ends when we say so, when we die, and with all that it started."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from coharness.policy.generation.channel import ChannelClosed
from coharness.policy.generation.engine_process import EngineProcess

MODULE = "tests.unit.policy.stubborn_process"
WAIT_S = 60.0


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + WAIT_S
    while True:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return
        if state == "Z":  # Gone, but for its parent's taking notice; in a container nobody may.
            return
        assert time.monotonic() < until, f"process {pid} is still there"
        select.select([], [], [], 0.02)


def test_it_is_told_by_hanging_up_and_leaves_by_itself(tmp_path: Path) -> None:
    process = EngineProcess(MODULE, {"MODE": "polite"}, tmp_path / "log")
    assert process.channel.receive(WAIT_S) == "up"
    assert process.is_alive()
    process.end(WAIT_S)
    assert not process.is_alive()
    wait_until_gone(process.pid)
    process.end(1.0)


def test_one_that_does_not_listen_is_killed_with_its_children(tmp_path: Path) -> None:
    process = EngineProcess(MODULE, {"MODE": "stubborn"}, tmp_path / "log")
    child = process.channel.receive(WAIT_S)
    process.end(0.2)
    wait_until_gone(process.pid)
    wait_until_gone(child)


def test_one_that_died_is_known_to_have_and_quoted(tmp_path: Path) -> None:
    process = EngineProcess(MODULE, {"MODE": "dying"}, tmp_path / "logs" / "log")
    with pytest.raises(ChannelClosed):
        process.channel.receive(WAIT_S)
    process.end(WAIT_S)
    assert process.last_words().endswith("these are my last words")


def test_a_child_of_a_dead_one_is_ended_too(tmp_path: Path) -> None:
    process = EngineProcess(MODULE, {"MODE": "stubborn"}, tmp_path / "log")
    child = process.channel.receive(WAIT_S)
    os.kill(process.pid, signal.SIGKILL)
    process.end(WAIT_S)
    wait_until_gone(child)


def test_it_dies_with_its_parent_however_the_parent_died(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from coharness.policy.generation.engine_process import EngineProcess
        process = EngineProcess({MODULE!r}, {{"MODE": "polite"}}, Path({str(tmp_path / "log")!r}))
        process.channel.receive({WAIT_S})
        print(process.pid, flush=True)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait(WAIT_S)
    parent.stdout.close()
    wait_until_gone(child)
