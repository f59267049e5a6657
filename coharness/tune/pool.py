"""Worker processes of one machine: they get orders and send reports as lines of JSON over a socket pair.

Nothing is pickled: a worker imports the user's class by its reference. A worker whose coordinator is gone ends at once,
whatever it is doing; one that dies or exceeds its deadline is replaced, and its order is done again, at most `max_attempts`
times.
"""

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from coharness.records.codec import decode, encode
from coharness.tune.config import TuneConfig
from coharness.tune.events import Order, Report, SegmentId
from coharness.tune.files import SearchDir

logger = logging.getLogger(__name__)


class Pool(Protocol):
    """Carries orders out; each order comes back in exactly one report."""

    @property
    def num_free(self) -> int:
        """Orders that could begin now."""
        ...

    def submit(self, order: Order) -> None:
        """Begin an order; call it only while `num_free` is above 0."""
        ...

    def poll(self, timeout_s: float) -> list[Report]:
        """Reports since the last call; waits at most `timeout_s` for one."""
        ...

    def close(self) -> None:
        """End everything it started."""
        ...


def worker_settings(search: SearchDir, config: TuneConfig) -> dict[str, Any]:
    """What a worker is built from, as JSON values; see `coharness.tune.worker.Worker`."""
    score = config.score
    return {
        "search_dir": str(search.path),
        "trainable": config.trainable,
        "constants": dict(config.constants),
        "target": None if score.target is None else [score.metric, score.target, config.sign],
        "max_resident": config.pool.max_resident,
    }


@dataclass(slots=True)
class _Worker:
    number: int
    process: "subprocess.Popen[bytes]"
    socket: socket.socket
    order: Order | None = None
    deadline: float = 0.0
    received: bytes = b""
    holds: str = ""
    "The checkpoint that it made last, and so has in memory."


class ProcessPool:
    """A `Pool` of processes on this machine."""

    def __init__(self, search: SearchDir, config: TuneConfig) -> None:
        """Start the workers; they import the user's class while the search begins."""
        self._search = search
        self._config = config.pool
        self._settings = worker_settings(search, config)
        self._selector = selectors.DefaultSelector()
        self._ready: list[Report] = []
        self._num_started = 0
        self._workers = [self._start() for _ in range(config.pool.workers)]

    @property
    def num_free(self) -> int:
        """Workers without an order."""
        return sum(worker.order is None for worker in self._workers)

    def submit(self, order: Order) -> None:
        """Give an order to a free worker, to one that has the parent in memory where there is one."""
        free = [worker for worker in self._workers if worker.order is None]
        wanted: set[SegmentId] = {segment for segment, _ in order.parents}
        self._send(next((worker for worker in free if worker.holds in wanted), free[0]), order)

    def poll(self, timeout_s: float) -> list[Report]:
        """See `Pool.poll`."""
        until = time.monotonic() + (0.0 if self._ready else timeout_s)
        while True:
            now = time.monotonic()
            due = min([until, *(w.deadline for w in self._workers if w.order is not None)])
            for key, _ in self._selector.select(max(0.0, due - now)):
                self._receive(key.data)
            for worker in list(self._workers):
                if worker.order is not None and time.monotonic() >= worker.deadline:
                    self._replace(worker, f"did not end within {self._config.deadline_s:g} s")
            if self._ready or time.monotonic() >= until:
                found, self._ready = self._ready, []
                return found

    def close(self) -> None:
        """Close the sockets, which ends the workers, and wait for them."""
        for worker in self._workers:
            self._end(worker)
        self._selector.close()

    def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        self._num_started += 1
        number = self._num_started
        threads = str(self._config.threads_per_worker)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        with (self._search.logs / f"worker-{number}.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "coharness.tune.serve", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own, so that the terminal's Ctrl-C ends no worker in the middle of a step.
                start_new_session=True,
                env={**os.environ, **dict.fromkeys(names, threads), "PYTHONPATH": _python_path()},
            )
        theirs.close()
        worker = _Worker(number=number, process=process, socket=ours)
        self._selector.register(ours, selectors.EVENT_READ, worker)
        _write(ours, self._settings)
        return worker

    def _send(self, worker: _Worker, order: Order) -> None:
        worker.order = order
        worker.deadline = time.monotonic() + self._config.deadline_s
        try:
            _write(worker.socket, {"order": encode(Order, order)})
        except OSError:
            self._replace(worker, "died before it got its order")

    def _receive(self, worker: _Worker) -> None:
        try:
            data = worker.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._replace(worker, f"died with exit code {worker.process.wait()}")
            return
        *lines, worker.received = (worker.received + data).split(b"\n")
        for line in lines:
            report: Report = decode(Report, json.loads(line))
            worker.order = None
            worker.holds = report.segment
            self._ready.append(report)

    def _replace(self, worker: _Worker, why: str) -> None:
        """End a worker, start another in its place, and do its order again."""
        order = worker.order
        logger.warning("worker %d %s; another one takes its place, log %s", worker.number, why, self._search.logs)
        self._end(worker)
        fresh = self._start()
        self._workers[self._workers.index(worker)] = fresh
        if order is None:
            return
        if order.attempt < self._config.max_attempts:
            self._send(fresh, replace(order, attempt=order.attempt + 1))
            return
        error = f"the worker {why}, {order.attempt} times; see {self._search.logs}"
        self._ready.append(
            Report(slot=order.slot, segment=order.segment, steps=0, metrics={}, seconds=0.0, error=error)
        )

    def _end(self, worker: _Worker) -> None:
        self._selector.unregister(worker.socket)
        worker.socket.close()
        try:
            worker.process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait()


def _write(target: socket.socket, data: Mapping[str, Any]) -> None:
    target.sendall(json.dumps(data, ensure_ascii=False).encode() + b"\n")


def _python_path() -> str:
    """This process's own import path first, so that a worker imports the same code."""
    root = str(Path(__file__).resolve().parents[2])
    paths: Sequence[str] = [root, *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != root)]
    return os.pathsep.join(paths)
