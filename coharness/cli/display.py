"""How a run shows itself: a live panel on a terminal, a plain line every few seconds elsewhere, or nothing.

Draws the snapshots that `Engine.status()` and `status_from_journal` give; decides nothing and keeps no history. One process
prints, the one that the user started; workers send events. A log file is never written to more often than `EVERY_S`.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY_S = 5.0
"""Seconds between two plain lines."""
UNKNOWN = "–"


class Progress(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    "The panel on a terminal, plain lines elsewhere."
    RICH = "rich"
    "The panel, even where no terminal is seen."
    PLAIN = "plain"
    "A line every few seconds."
    NONE = "none"
    "Nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run at one moment, as its status says."""

    phase: str
    elapsed_s: float
    rollouts: int
    budget: int
    updates: int
    in_flight: Mapping[str, int]
    champion: str
    track: float | None
    "Latest success rate on the TRACK pool, None before the first reading."
    fitness: float | None
    "Posterior mean success of the leading pairing under the evaluation mix."
    staleness: float | None
    "Most updates that a trained group lay behind."
    throughput: float | None
    "Episodes a second."
    accepted: int
    rejected: int
    last_event: str
    "The last thing that a person would care about, as a sentence."

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> "Snapshot":
        """The snapshot that a status mapping holds; what the run does not know yet is None, zero or empty."""
        return cls(
            phase=str(status.get("phase", "starting")),
            elapsed_s=float(status.get("elapsed_s") or 0.0),
            rollouts=int(status.get("rollouts") or 0),
            budget=int(status.get("budget") or 0),
            updates=int(status.get("updates") or 0),
            in_flight=dict(status.get("in_flight") or {}),
            champion=str(status.get("champion") or ""),
            track=_number(status.get("track")),
            fitness=_number(status.get("lead_fitness")),
            staleness=_number(status.get("staleness_max")),
            throughput=_number(status.get("throughput")),
            accepted=int(status.get("accepted") or 0),
            rejected=int(status.get("rejected") or 0),
            last_event=str(status.get("last_event") or ""),
        )

    @property
    def share(self) -> float:
        """Share of the rollouts spent, in [0, 1]."""
        return min(self.rollouts / self.budget, 1.0) if self.budget else 0.0


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _rounded(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def clock_text(seconds: float) -> str:
    """`m:ss`, or `h:mm:ss` from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Name and value of everything worth a look, in reading order."""
    flight = " ".join(f"{count} {name}" for name, count in snapshot.in_flight.items() if count)
    return [
        ("J on TRACK", _rounded(snapshot.track, 3)),
        ("fitness of the lead", _rounded(snapshot.fitness, 3)),
        ("champion", snapshot.champion or UNKNOWN),
        ("updates", f"{snapshot.updates:,}"),
        ("accepted / rejected", f"{snapshot.accepted} / {snapshot.rejected}"),
        ("in flight", flight or "nothing"),
        ("episodes a second", _rounded(snapshot.throughput, 0)),
        ("staleness, at most", _rounded(snapshot.staleness, 0)),
    ]


def plain_line(snapshot: Snapshot) -> str:
    """The snapshot as one line of text; what the run does not know yet is left out."""
    if not snapshot.budget:
        return snapshot.phase
    parts = [
        f"{clock_text(snapshot.elapsed_s)} {snapshot.phase}",
        f"{snapshot.rollouts:,}/{snapshot.budget:,} rollouts ({snapshot.share:.0%})",
        *(f"{name} {value}" for name, value in facts(snapshot) if value != UNKNOWN),
    ]
    if snapshot.last_event:
        parts.append(snapshot.last_event)
    return " | ".join(" ".join(part.split()) for part in parts)


def panel(snapshot: Snapshot, title: str) -> "RenderableType":
    """The snapshot as a panel: bar of rollouts, facts in two columns, the last event as a sentence."""
    from rich.box import ROUNDED
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        ProgressBar(total=max(snapshot.budget, 1), completed=snapshot.rollouts),
        f"{snapshot.rollouts:,} / {snapshot.budget:,} rollouts  {clock_text(snapshot.elapsed_s)}",
    )
    body = Table.grid(expand=True, padding=(0, 1))
    for _ in range(2):
        body.add_column(style="dim", no_wrap=True)
        body.add_column(ratio=1)
    cells = [Text(text) for pair in facts(snapshot) for text in pair]
    for first in range(0, len(cells), 4):
        body.add_row(*cells[first : first + 4])
    return Panel(
        Group(head, body, Text(snapshot.last_event or " ", style="italic", no_wrap=True, overflow="ellipsis")),
        title=Text(f"{title}  {snapshot.phase}"),
        title_align="left",
        box=ROUNDED,
    )


class Display(Protocol):
    """Shows snapshots until it is closed."""

    def update(self, status: Mapping[str, Any]) -> None:
        """Show this status, now or when it is next due."""
        ...

    def say(self, message: str) -> None:
        """Show a sentence that must not be lost."""
        ...

    def close(self) -> None:
        """Show the last status once more and give the terminal back."""
        ...


class NoDisplay:
    """Shows nothing but what must not be lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, status: Mapping[str, Any]) -> None:
        """Nothing."""

    def say(self, message: str) -> None:
        """One line."""
        print(message, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing."""


class PlainDisplay(NoDisplay):
    """One line every `every_s` seconds, at once when the phase changes, and a last one; never the same line twice in a row."""

    def __init__(self, stream: TextIO, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._every_s = every_s
        self._clock = clock
        self._due = -float("inf")
        self._phase = ""
        self._line = ""
        self._pending: Snapshot | None = None

    def update(self, status: Mapping[str, Any]) -> None:
        """A line, where one is due."""
        snapshot = Snapshot.of(status)
        if self._clock() < self._due and snapshot.phase == self._phase:
            self._pending = snapshot
            return
        self._write(snapshot)

    def close(self) -> None:
        """The last status, where it was not shown yet."""
        if self._pending is not None:
            self._write(self._pending)

    def _write(self, snapshot: Snapshot) -> None:
        self._due = self._clock() + self._every_s
        self._phase = snapshot.phase
        self._pending = None
        line = plain_line(snapshot)
        if line != self._line:
            self._line = line
            self.say(line)


class RichDisplay:
    """A live panel; colours are left out where NO_COLOR is set."""

    def __init__(self, stream: TextIO, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def update(self, status: Mapping[str, Any]) -> None:
        """Redraw the panel."""
        self._live.update(panel(Snapshot.of(status), self._title))

    def say(self, message: str) -> None:
        """One line above the panel."""
        from rich.text import Text

        self._console.print(Text(message))

    def close(self) -> None:
        """Leave the last panel on the screen."""
        self._live.stop()


def open_display(progress: Progress, title: str, stream: TextIO | None = None) -> Display:
    """The display that `progress` asks for on this stream (standard output where left out).

    `auto` is the panel where the stream is a terminal that can be drawn on, plain lines elsewhere.
    """
    from os import environ

    stream = stream or sys.stdout
    if progress is Progress.AUTO:
        drawable = stream.isatty() and environ.get("TERM") != "dumb"
        progress = Progress.RICH if drawable else Progress.PLAIN
    match progress:
        case Progress.RICH:
            return RichDisplay(stream, title)
        case Progress.PLAIN:
            return PlainDisplay(stream)
        case _:
            return NoDisplay(stream)
