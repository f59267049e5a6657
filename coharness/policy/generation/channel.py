"""One JSON value a line between two processes, with a deadline on every wait.

Owns one end of a socket pair. Values are what `records.codec` writes, so nothing that runs code crosses. One thread may receive
while others send; the far end's death ends every wait at once.
"""

import contextlib
import json
import select
import socket
import threading
import time
from typing import Any, Final, final

_CHUNK: Final = 1 << 16


class ChannelClosed(Exception):
    """The far end is gone."""


class ChannelSilent(Exception):
    """Nothing came, or nothing was taken, within the deadline."""


@final
class Channel:
    """Sends and receives JSON values."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`, a connected stream socket."""
        self._socket = sock
        self._socket.setblocking(False)
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def send(self, value: Any, timeout_s: float) -> None:
        """Send one value.

        Raises:
            ChannelClosed: the far end is gone.
            ChannelSilent: the far end took nothing for `timeout_s`.
            ValueError: the value holds what JSON cannot write (NaN, an infinity).
        """
        data = memoryview(json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n")
        with self._sending:
            while data:
                self._wait(timeout_s, writing=True)
                try:
                    sent = self._socket.send(data)
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise ChannelClosed(f"cannot send: {error}") from error
                data = data[sent:]

    def receive(self, timeout_s: float | None) -> Any:
        """The next value; waits for ever where `timeout_s` is None, which only a process whose life hangs on the far end's may.

        Raises:
            ChannelClosed: the far end is gone, and all that it sent was received.
            ChannelSilent: no whole value came within `timeout_s`.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            self._wait(None if until is None else until - time.monotonic(), writing=False)
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(f"cannot receive: {error}") from error
            if not chunk:
                raise ChannelClosed("the far end closed the channel")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return json.loads(line)

    def close(self) -> None:
        """Hang up; the far end sees ChannelClosed."""
        # Where the far end hung up first there is nothing to shut down.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _wait(self, timeout_s: float | None, *, writing: bool) -> None:
        ends = [self._socket]
        limit = None if timeout_s is None else max(timeout_s, 0.0)
        try:
            readable, writable, _ = select.select([] if writing else ends, ends if writing else [], [], limit)
        except (OSError, ValueError) as error:
            raise ChannelClosed(f"the channel was closed here: {error}") from error
        if not readable and not writable:
            raise ChannelSilent(f"the far end {'took' if writing else 'said'} nothing in time")
