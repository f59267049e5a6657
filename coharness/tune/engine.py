"""Drives a search: gives orders, takes reports, lets the core decide, and writes everything down before acting on it.

    due places ──orders──▶ pool ──reports──▶ core ──frame──▶ journal (durable) ──▶ state ──▶ due places

Invariants: a decision is in the journal before any order that follows from it is given; a checkpoint is deleted only when
the journal holds the events that made it unneeded. So whatever ends the process, `resume` folds the journal and goes on
where it stopped.
"""

import logging
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

from coharness.records.errors import CoharnessError
from coharness.tune.core import Context, beginning, decide, ending, order, take_report
from coharness.tune.events import Ended, Event, Report
from coharness.tune.files import SearchDir
from coharness.tune.journal import SearchJournal, read_journal
from coharness.tune.pool import Pool
from coharness.tune.result import write_result
from coharness.tune.state import SearchState

logger = logging.getLogger(__name__)
POLL_S = 0.5


class SearchError(CoharnessError):
    """A search cannot go on: every member failed again and again."""


class SearchEnd(StrEnum):
    """How a search's process ended."""

    DONE = "done"
    "It spent its steps, or reached its target."
    TIME = "time"
    "Its minutes were spent first; it can be resumed."
    STOPPED = "stopped"
    "Somebody asked it to stop; it can be resumed."


class SearchEngine:
    """One process's run of a search.

    Args:
        search: its folder.
        ctx: its context.
        pool: what carries orders out; the engine closes it.
        on_event: called with the state after every frame.
        should_stop: asked between frames.
    """

    def __init__(
        self,
        search: SearchDir,
        ctx: Context,
        pool: Pool,
        *,
        on_event: Callable[[SearchState], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._search = search
        self._ctx = ctx
        self._pool = pool
        self._on_event = on_event
        self._should_stop = should_stop
        self._in_flight: set[int] = set()
        self._held: dict[int, Report] = {}
        "Reports that wait for the rest of their round."
        self._kept: frozenset[str] = frozenset()
        self.state = SearchState()

    def run(self) -> SearchEnd:
        """Go on until the search is over.

        Raises:
            SearchError: every member failed again and again.
        """
        until = time.monotonic() + 60 * self._ctx.config.budget.minutes
        self.state = fold_journal(self._search, self._ctx)
        if not self._ctx.config.keep_checkpoints:
            self._search.forget(self.state.needed())
        self._kept = self.state.needed()
        journal = SearchJournal(self._search.journal_path)
        try:
            if not self.state.slots:
                self._commit(journal, beginning(self._ctx))
            self._decide_waiting(journal)
            while not self.state.ended:
                if self._should_stop():
                    return SearchEnd.STOPPED
                if time.monotonic() >= until:
                    return SearchEnd.TIME
                self._give_orders()
                reports = self._pool.poll(POLL_S)
                if reports:
                    self._take(journal, reports)
            write_result(self._search, self._ctx, self.state)
        finally:
            journal.close()
            self._pool.close()
        if all(slot.num_failures for slot in self.state.slots):
            raise SearchError(f"all members failed again and again; see the errors in {self._search.journal_path}")
        return SearchEnd.DONE

    def _give_orders(self) -> None:
        """Whoever has done least work goes first, so that a slow member is never kept waiting by quick ones."""
        if not self._pool.num_free:
            return
        held = self._held
        due = [i for i, slot in enumerate(self.state.slots) if not (slot.is_over or i in self._in_flight or i in held)]
        for index in sorted(due, key=lambda i: (self.state.slots[i].steps, i)):
            if not self._pool.num_free:
                return
            self._pool.submit(order(self.state, self._ctx, index))
            self._in_flight.add(index)

    def _take(self, journal: SearchJournal, reports: Sequence[Report]) -> None:
        for report in reports:
            self._in_flight.discard(report.slot)
            if report.error:
                logger.warning("%s: %s", report.segment, report.error)
            taken = take_report(self._ctx, report)
            if self._ctx.config.pool.order == "arrival":
                self._advance(journal, [taken])
            else:
                self._held[report.slot] = taken
        if self._held and len(self._held) == sum(not slot.is_over for slot in self.state.slots):
            held, self._held = self._held, {}
            self._advance(journal, [held[index] for index in sorted(held)])

    def _advance(self, journal: SearchJournal, reports: Sequence[Report]) -> None:
        """Take reports and decide on their members; one frame, so that no report is ever without its decision."""
        frame: list[Event] = []
        for report in reports:
            self._fold(frame, report)
        for report in reports:
            self._fold(frame, decide(self.state, self._ctx, report.slot))
        over = ending(self.state, self._ctx)
        if over is not None:
            self._fold(frame, over)
        self._write(journal, frame)

    def _decide_waiting(self, journal: SearchJournal) -> None:
        """Nobody waits in a journal of whole frames; what is over is said to be over."""
        over = ending(self.state, self._ctx)
        if over is not None and not self.state.ended:
            self._commit(journal, [over])

    def _commit(self, journal: SearchJournal, events: Sequence[Event]) -> None:
        frame: list[Event] = []
        for event in events:
            self._fold(frame, event)
        self._write(journal, frame)

    def _fold(self, frame: list[Event], event: Event) -> None:
        frame.append(event)
        self._ctx.take(self.state, event)
        if isinstance(event, Ended):
            logger.info("the search is over: %s", event.why)

    def _write(self, journal: SearchJournal, frame: Sequence[Event]) -> None:
        journal.append(frame)
        if not self._ctx.config.keep_checkpoints:
            needed = self.state.needed()
            made = {event.segment for event in frame if isinstance(event, Report)}
            self._search.drop((self._kept | made) - needed)
            self._kept = needed
        if self._on_event is not None:
            self._on_event(self.state)


def fold_journal(search: SearchDir, ctx: Context) -> SearchState:
    """The state that a search's journal folds to; an empty one where there is no journal yet."""
    state = SearchState()
    if search.journal_path.exists():
        for frame in read_journal(search.journal_path):
            for event in frame:
                ctx.take(state, event)
    return state
