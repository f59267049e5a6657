"""Processes are noticed however they start."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coharness.studies.processes import watch_processes
from tests.arch.source import ROOT


def _forks() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def _runs() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True, timeout=60)


def _spawns() -> None:
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], os.environ), 0)


@pytest.mark.parametrize(
    ("start", "word"),
    [(_forks, "os.fork"), (_runs, Path(sys.executable).name), (_spawns, "os.posix_spawn")],
)
def test_processes_are_noticed_however_they_start(start: Any, word: str) -> None:
    with watch_processes() as outer:
        with watch_processes() as watch:
            start()
        assert watch.started() == [word]
        assert outer.started() == [word]
        outer.seen.clear()
    start()
    assert outer.started() == watch_nothing()


def watch_nothing() -> list[str]:
    with watch_processes() as watch:
        pass
    return watch.started()


def test_processes_that_multiprocessing_starts_are_noticed() -> None:
    code = (
        "import multiprocessing as mp; from coharness.studies.processes import watch_processes\n"
        "def main():\n"
        "    with watch_processes() as watch:\n"
        "        process = mp.get_context('spawn').Process(target=print)\n"
        "        process.start(); process.join(60)\n"
        "    assert watch.started(), 'unseen'\n"
        "if __name__ == '__main__': main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
