"""A worker process: `python -m coharness.tune.serve FD`, started by `pool`; no verb for people.

The first line that comes is what the worker is built from, each further one an order; every order is answered by a line. A
thread reads, so that the end of the coordinator is noticed in the middle of a step.
"""

import json
import os
import queue
import socket
import sys
import threading

from coharness.records.codec import decode, encode
from coharness.tune.events import Order, Report
from coharness.tune.worker import Worker


def main(descriptor: int) -> None:
    """Serve until the other end closes."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with socket.socket(fileno=descriptor) as channel:

        def read() -> None:
            try:
                with channel.makefile("rb") as stream:
                    for line in stream:
                        lines.put(line)
            finally:
                # However it ended (a killed coordinator may reset the connection): nobody is left to report to, and what is
                # half written is no checkpoint yet.
                os._exit(0)

        threading.Thread(target=read, daemon=True).start()
        settings = json.loads(lines.get())
        target = settings.pop("target")
        worker = Worker(**settings, target=None if target is None else (target[0], target[1], target[2]))
        while True:
            report = worker.run(decode(Order, json.loads(lines.get())["order"]))
            channel.sendall(json.dumps(encode(Report, report), ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
