import io
import os
import pty
import re
import subprocess
import sys

import pytest

from coharness.cli.display import PlainDisplay, Progress, Snapshot, clock_text, open_display, plain_line
from tests.arch.source import ROOT

STATUS = {
    "phase": "running",
    "elapsed_s": 83.2,
    "rollouts": 12_800,
    "budget": 51_200,
    "updates": 42,
    "in_flight": {"rollout": 128, "train": 1, "gate": 12},
    "champion": "p1@12×h-0123456789ab",
    "track": 0.4125,
    "lead_fitness": 0.5,
    "staleness_max": 2,
    "throughput": 310.0,
    "accepted": 3,
    "rejected": 5,
    "last_event": "count is answered in format trace from now on",
}
SHOW = f"""
import sys
from coharness.cli.display import Progress, open_display
display = open_display(Progress(sys.argv[1]), "runs/x")
display.update({STATUS!r})
display.say("something that matters")
display.close()
"""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def at(rollouts: int, phase: str = "running") -> dict[str, object]:
    return {**STATUS, "rollouts": rollouts, "phase": phase}


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def shown_on_a_pipe(progress: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, progress],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout


def shown_on_a_terminal(progress: str, **environment: str) -> str:
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **environment}
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, progress],
        cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        written = b""
        while chunk := read_terminal(ours):
            written += chunk
        assert process.wait(timeout=60) == 0
    os.close(ours)
    return written.decode()


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        # Linux says EIO, not end of file, when the last process on a terminal has gone.
        return b""


def test_a_line_says_everything_worth_a_look() -> None:
    line = plain_line(Snapshot.of(STATUS))
    for part in (
        "1:23 running",
        "12,800/51,200",
        "25%",
        "0.412",
        "p1@12×h-0123456789ab",
        "128 rollout",
        "1 train",
        "3 / 5",
    ):
        assert part in line
    assert line.endswith("count is answered in format trace from now on")
    assert "\n" not in line


def test_what_a_run_does_not_know_yet_is_left_out_of_the_line() -> None:
    line = plain_line(Snapshot.of({"phase": "running", "budget": 10, "track": None, "in_flight": {}}))
    assert "J on TRACK" not in line
    assert "in flight nothing" in line


def test_a_run_that_is_not_there_yet_says_so_once() -> None:
    stream, clock = io.StringIO(), Clock()
    display = PlainDisplay(stream, clock=clock)
    for second in range(30):
        clock.now = float(second)
        display.update({"phase": "starting"})
    display.close()
    assert lines_of(stream) == ["starting"]


def test_a_line_stays_one_line_whatever_the_event_says() -> None:
    assert "\n" not in plain_line(Snapshot.of({**STATUS, "last_event": "two\nlines"}))


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (3599, "59:59"), (3661, "1:01:01")])
def test_clock_text(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_plain_lines_come_every_few_seconds_and_the_last_status_is_not_lost() -> None:
    stream, clock = io.StringIO(), Clock()
    display = PlainDisplay(stream, every_s=5.0, clock=clock)
    for second in range(12):
        clock.now = float(second)
        display.update(at(second))
    assert [re.search(r"(\d+)/", line).group(1) for line in lines_of(stream)] == ["0", "5", "10"]  # type: ignore[union-attr]
    display.close()
    assert "11/" in lines_of(stream)[-1]
    display.close()
    assert len(lines_of(stream)) == 4


def test_a_new_phase_is_shown_at_once() -> None:
    stream, clock = io.StringIO(), Clock()
    display = PlainDisplay(stream, clock=clock)
    display.update(at(1))
    display.update(at(2))
    display.update(at(3, phase="draining"))
    assert [line.split()[1] for line in lines_of(stream)] == ["running", "draining"]


def test_a_pipe_gets_plain_lines_without_a_control_character() -> None:
    text = shown_on_a_pipe("auto")
    assert text.splitlines() == [plain_line(Snapshot.of(STATUS)), "something that matters"]
    assert "\x1b" not in text


def test_a_terminal_gets_the_panel() -> None:
    text = shown_on_a_terminal("auto")
    assert "\x1b[" in text
    assert "╭" in text
    assert "12,800 / 51,200 rollouts" in text
    assert "something that matters" in text
    assert "count is answered in format trace from now on" in text


def test_a_terminal_that_cannot_be_drawn_on_gets_plain_lines() -> None:
    text = shown_on_a_terminal("auto", TERM="dumb")
    assert "╭" not in text
    assert "12,800/51,200 rollouts" in text


def test_no_color_leaves_colours_out_and_the_panel_in() -> None:
    colour = re.compile(r"\x1b\[[0-9;]*(3[0-7]|38;|9[0-7])[0-9;]*m")
    assert colour.search(shown_on_a_terminal("rich"))
    plain = shown_on_a_terminal("rich", NO_COLOR="1")
    assert not colour.search(plain)
    assert "╭" in plain


def test_none_shows_only_what_must_not_be_lost() -> None:
    assert shown_on_a_pipe("none") == "something that matters\n"
    stream = io.StringIO()
    display = open_display(Progress.NONE, "x", stream)
    display.update(STATUS)
    display.close()
    assert stream.getvalue() == ""
