"""A process of a trainer group: obeys the commands that come over its socket, one at a time, until the socket closes.

Started by `deepspeed_group` as `python -m coharness.policy.training.deepspeed_process FD SCRATCH`. Invariant: it does not outlive
its trainer, whatever it is doing: a thread of its own reads the socket and leaves the process when the other end is gone.
"""

import logging
import os
import queue
import shutil
import sys
import threading
import time
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from coharness.policy.threads import set_threads
from coharness.policy.training.deepspeed_messages import (
    Answer,
    BaseTensors,
    Join,
    Open,
    PublishMerged,
    Train,
    receive,
    send,
)

FAILED: Final = 70
"""Exit code of a process that could not go on."""


def main(descriptor: int, scratch: Path) -> None:
    """Obey until the socket closes; the group's folder `scratch` goes then, if the trainer had no time to remove it."""
    connection = Connection(descriptor)
    commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, commands, scratch), name="listener", daemon=True).start()
    trainer: Any = None
    while True:
        command = commands.get()
        began = time.process_time()
        try:
            if isinstance(command, Join):
                trainer, answer = _join(command), Answer()
            else:
                answer = _obey(trainer, command)
        except Exception as error:
            # The other ranks may be waiting in an exchange that this one has left; only a new group can go on.
            traceback.print_exc()
            send(connection, Answer(failure=f"{type(error).__name__}: {error}"))
            os._exit(FAILED)
        send(connection, replace(answer, cpu_s=time.process_time() - began))


def _listen(connection: Connection, commands: "queue.SimpleQueue[Any]", scratch: Path) -> None:
    """Queue what comes; whatever ends this thread ends the process, which nobody could end by its socket any more."""
    code = FAILED
    try:
        while True:
            commands.put(receive(connection))
    except (EOFError, OSError):
        code = 0
    except Exception:
        traceback.print_exc()
    # The main thread may be deep in an exchange; nothing it holds needs an orderly end.
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(code)


def _join(command: Join) -> Any:
    set_threads(command.num_threads)
    from coharness.policy.bases import load_base, resolve_base
    from coharness.policy.training.deepspeed_member import RankTrainer
    from coharness.policy.training.deepspeed_ranks import join

    section = command.training.deepspeed
    ranks = join(command.rank, command.size, command.meeting_point, section.collective_s)
    base = load_base(resolve_base(command.policy.base), command.policy.dtype)
    return RankTrainer(base, command.policy, command.training, ranks)


def _obey(trainer: Any, command: Any) -> Answer:
    match command:
        case Open():
            trainer.open(command.run_dir, command.training, command.resident_bytes)
            return Answer()
        case Train():
            return Answer(result=trainer.train(command.job, command.own, command.borrowed))
        case PublishMerged():
            return Answer(result=trainer.publish_merged(command.job, command.tensors))
        case BaseTensors():
            return Answer(tensors=trainer.base_tensors())
    raise ValueError(f"unknown command {type(command).__name__}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main(int(sys.argv[1]), Path(sys.argv[2]))
