"""A trainer group from outside: starts its processes, gives all of them the same command, and ends them.

No launcher: each process is a child of the trainer that holds the group and shares one socket pair with it. Invariants: every
wait has a deadline; a group that lost a process, or a deadline, is ended as a whole, by process id, and says why; no process
outlives the group, nor the process that holds it. Driven by `deepspeed_trainer`.
"""

import contextlib
import logging
import math
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import coharness
from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.threads import THREAD_VARIABLES
from coharness.policy.training.deepspeed_extra import require_deepspeed
from coharness.policy.training.deepspeed_messages import Answer, Command, Join, receive, send
from coharness.policy.training.deepspeed_ranks import loopback_interface
from coharness.records.errors import Boundary, BoundaryError

_log = logging.getLogger(__name__)
_END_S: Final = 10.0
_SETTLE_S: Final = 2.0
_TAIL_BYTES: Final = 2_000
_ROOT: Final = Path(coharness.__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rank:
    """One process of the group."""

    process: "subprocess.Popen[bytes]"
    connection: Connection
    log: Path


class TrainerGroup:
    """The processes of one trainer; the engine they share serves one base, one shape of members and one stage for their life."""

    def __init__(self, policy: PolicySection, training: TrainingSection, *, num_threads: int = 1) -> None:
        """Start the processes and wait until the engine is built.

        Args:
            policy: Base and shape of the members.
            training: Its section `deepspeed` shapes the group.
            num_threads: Threads of each process.

        Raises:
            PreflightError: DeepSpeed is not installed here.
            BoundaryError: a process failed (WORKER), or the start took longer than `start_s` (DEADLINE).
        """
        require_deepspeed()
        self._size = training.deepspeed.world_size
        self._scratch = Path(tempfile.mkdtemp(prefix="coharness-deepspeed-"))
        self._ranks: list[_Rank] = []
        # Also when nobody closes the group: at the latest when the interpreter ends.
        self._finalizer = weakref.finalize(self, _end, self._ranks, self._scratch)
        try:
            for rank in range(self._size):
                self._ranks.append(self._start(rank, num_threads, training.deepspeed.collective_s))
            joins = [
                Join(
                    rank=rank,
                    size=self._size,
                    meeting_point=self._scratch / "meeting_point",
                    policy=policy,
                    training=training,
                    num_threads=num_threads,
                )
                for rank in range(self._size)
            ]
            self._ask(joins, training.deepspeed.start_s)
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked; a group that failed is not."""
        # A rank speaks when it is asked; one that can be read from now has ended.
        return self._finalizer.alive and not any(
            rank.process.poll() is not None or rank.connection.poll() for rank in self._ranks
        )

    @property
    def process_ids(self) -> list[int]:
        """Of its processes, by rank; empty once it is closed."""
        return [rank.process.pid for rank in self._ranks]

    def ask_all(self, command: Command, deadline_s: float) -> list[Answer]:
        """Give every rank this command and wait for all answers, in the order of ranks.

        Raises:
            BoundaryError: a process ended or could not go on (WORKER), or an answer took too long (DEADLINE); the group is closed
                then.
        """
        return self._ask([command] * self._size, deadline_s)

    def ask_first(self, command: Command, deadline_s: float) -> Answer:
        """As `ask_all`, of the first rank alone; for what needs no exchange."""
        return self._ask([command], deadline_s)[0]

    def close(self) -> None:
        """End every process at once and wait until it is gone; harmless when repeated."""
        self._finalizer()

    def _ask(self, commands: Sequence[Command], deadline_s: float) -> list[Answer]:
        what = type(commands[0]).__name__
        if not self._ranks:
            raise BoundaryError(Boundary.WORKER, f"the trainer group was asked for {what} after it was closed")
        answers: dict[int, Answer] = {}
        failures: dict[int, str] = {}
        until = time.monotonic() + deadline_s
        try:
            waiting = {self._ranks[number].connection: number for number in range(len(commands))}
            for connection, number in waiting.items():
                send(connection, commands[number])
            while waiting:
                done: list[Any] = wait(list(waiting), timeout=max(0.0, until - time.monotonic()))
                for connection in done:
                    number = waiting.pop(connection)
                    answers[number] = self._answer(connection, number)
                    if failure := answers[number].failure:
                        failures[number] = failure
                        # Where one failed the others do too; which was the cause is seen when all have spoken.
                        until = min(until, time.monotonic() + _SETTLE_S)
                if not done:
                    break
        except OSError as error:
            self.close()
            raise BoundaryError(
                Boundary.WORKER, f"a process of the trainer group does not take {what}: {error}"
            ) from error
        except BaseException:
            # Interrupted between a command and its answers: what comes next would be read as the answer to another.
            self.close()
            raise
        if failures:
            self.close()
            told = "; ".join(f"rank {number} {failures[number]}" for number in sorted(failures))
            raise BoundaryError(Boundary.WORKER, f"the trainer group of {self._size} failed in {what}: {told}")
        if waiting:
            self.close()
            late = ", ".join(map(str, sorted(waiting.values())))
            raise BoundaryError(
                Boundary.DEADLINE, f"{what} took rank {late} of {self._size} more than {deadline_s:.0f} s"
            )
        return [answers[number] for number in range(len(commands))]

    def _answer(self, connection: Connection, number: int) -> Answer:
        """What a rank said, or how it ended."""
        try:
            answer: Answer = receive(connection)
        except (EOFError, OSError):
            rank = self._ranks[number]
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(timeout=_END_S)
            return Answer(failure=f"ended with code {rank.process.returncode}{_tail(rank.log)}")
        return replace(answer, failure=f"said {answer.failure}") if answer.failure else answer

    def _start(self, rank: int, num_threads: int, exchange_s: float) -> _Rank:
        ours, theirs = socket.socketpair()
        # A message that is larger than the socket's buffer waits for its reader, who may have stopped in its middle.
        limit = struct.pack("ll", math.ceil(exchange_s), 0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        log = self._scratch / f"rank{rank}.log"
        environment = {
            **os.environ,
            **dict.fromkeys(THREAD_VARIABLES, str(num_threads)),
            "TOKENIZERS_PARALLELISM": "false",
            "DS_ACCELERATOR": "cpu",
            # DeepSpeed looks for these, and for MPI where they are missing; who is who is settled by `join`.
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._size),
            "LOCAL_SIZE": str(self._size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
            "GLOO_SOCKET_IFNAME": loopback_interface(),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))),
        }
        scratch = str(self._scratch)
        with theirs, log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "coharness.policy.training.deepspeed_process", str(theirs.fileno()), scratch],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
            )
        return _Rank(process=process, connection=Connection(ours.detach()), log=log)


def _end(ranks: list[_Rank], scratch: Path) -> None:
    """End the processes by their ids, together, and forget what they left."""
    for rank in ranks:
        rank.process.kill()
    for rank in ranks:
        try:
            rank.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            _log.error("process %d of a trainer group is not gone after %.0f s", rank.process.pid, _END_S)
        rank.connection.close()
    ranks.clear()
    shutil.rmtree(scratch, ignore_errors=True)


def _tail(log: Path) -> str:
    """The last lines a process wrote, for a message; empty where it wrote none."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return ""
    return f"; its last words: {' / '.join(text.splitlines()[-5:])}" if text else ""
