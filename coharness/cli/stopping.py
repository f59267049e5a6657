"""Ctrl-C and SIGTERM as requests: the first asks a run to drain, the second to stop at once, the third leaves this process.

Whatever is asked, the run stays resumable: the journal holds every decision before it is acted on.
"""

import signal
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Self

SOFT_MESSAGE = "stopping: what is in flight will finish; press Ctrl-C again to stop at once"
HARD_MESSAGE = "stopping at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A request to stop a run."""

    reason: str
    hard: bool
    "Drop what is in flight instead of waiting for it."


class StopSwitch:
    """Collects signals while it is open, and gives the handlers back afterwards; for the main thread."""

    def __init__(self) -> None:
        self._num_signals = 0
        self._reason = ""
        self._saved: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        """Take the handlers over."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._saved[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the handlers back."""
        for number, handler in self._saved.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned
        self._saved.clear()

    @property
    def wanted(self) -> Stop | None:
        """What was asked for so far; a later request is never weaker than an earlier one."""
        if not self._num_signals:
            return None
        return Stop(reason=self._reason, hard=self._num_signals > 1)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._num_signals += 1
        self._reason = "a person pressed Ctrl-C" if number == signal.SIGINT else "the process was sent SIGTERM"
        if self._num_signals > 2:
            raise KeyboardInterrupt
