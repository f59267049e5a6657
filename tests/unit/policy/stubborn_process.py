"""A process for the tests of `engine_process`; the environment's MODE says what it does."""

import os
import signal
import socket
import subprocess
import sys
import time

from coharness.policy.generation.channel import Channel, ChannelClosed


def main() -> None:
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    match os.environ["MODE"]:
        case "polite":
            channel.send("up", 10)
            try:
                channel.receive(None)
            except ChannelClosed:
                return
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            channel.send(child.pid, 10)
            time.sleep(600)
        case "dying":
            sys.exit("these are my last words")


if __name__ == "__main__":
    main()
