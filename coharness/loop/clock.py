"""Time for the engine; the core itself sees time only in Tick events."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the engine reads time from."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def cpu(self) -> float:
        """CPU seconds of this process."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def cpu(self) -> float:
        """CPU seconds of this process."""
        return time.process_time()
