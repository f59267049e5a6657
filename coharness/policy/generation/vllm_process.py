"""The process that holds a vLLM engine: `python -m coharness.policy.generation.vllm_process FD`.

    reader thread ── orders ──► queue ──► main thread: engine, steps, reports
         └── Abort sets a flag · a closed channel ends the process at once, whatever the engine is doing

Started and ended by `vllm_engine` through `engine_process`. Standard output and error go to the log that it was given.
"""

import os
import queue
import socket
import sys
import threading
import time
import traceback
from typing import Final

from coharness.policy.generation.channel import Channel, ChannelClosed
from coharness.policy.generation.vllm_messages import (
    Abort,
    Alive,
    Open,
    Order,
    Ready,
    Refused,
    Report,
    Write,
    Written,
    order_from_json,
    report_to_json,
)
from coharness.records.errors import WeightsError

_SEND_S: Final = 60.0
_ALIVE_EVERY_S: Final = 1.0


class _Server:
    """Orders in, reports out."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._orders: queue.SimpleQueue[Open | Write] = queue.SimpleQueue()
        self._aborted = threading.Event()
        self._said = time.monotonic()

    def read(self) -> None:
        """Take orders until the far end hangs up, then end this process."""
        try:
            while True:
                order: Order = order_from_json(self._channel.receive(None))
                if isinstance(order, Abort):
                    self._aborted.set()
                else:
                    # Cleared as the order comes in: an Abort behind it speaks of it even before it is begun.
                    self._aborted.clear()
                    self._orders.put(order)
        except ChannelClosed:
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def serve(self) -> None:
        """Open the engine, then write for as long as the process lives."""
        opened = self._orders.get()
        assert isinstance(opened, Open), f"the first order is Open, got {type(opened).__name__}"
        try:
            from coharness.policy.generation.vllm_core import VllmCore

            core = VllmCore(opened)
        except Exception as error:
            traceback.print_exc()
            self._say(Refused(error="engine", message=f"{type(error).__name__}: {error}"))
            return
        self._say(Ready(device=core.device))
        while True:
            order = self._orders.get()
            assert isinstance(order, Write), f"after Open come Writes, got {type(order).__name__}"
            try:
                report: Report = Written(
                    answers=tuple(core.write(order.requests, self._aborted.is_set, self._still_alive))
                )
            except WeightsError as error:
                report = Refused(error="weights", message=str(error))
            except ValueError as error:
                traceback.print_exc()
                report = Refused(error="value", message=str(error))
            except Exception as error:
                traceback.print_exc()
                report = Refused(error="engine", message=f"{type(error).__name__}: {error}")
            self._say(report)
            if isinstance(report, Refused) and report.error == "engine":
                return

    def _still_alive(self) -> None:
        if time.monotonic() - self._said >= _ALIVE_EVERY_S:
            self._say(Alive())

    def _say(self, report: Report) -> None:
        self._channel.send(report_to_json(report), _SEND_S)
        self._said = time.monotonic()


def main() -> None:
    """Serve the socket whose descriptor is the one argument."""
    server = _Server(Channel(socket.socket(fileno=int(sys.argv[1]))))
    threading.Thread(target=server.read, name="orders", daemon=True).start()
    server.serve()


if __name__ == "__main__":
    main()
