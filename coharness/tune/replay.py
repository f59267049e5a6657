"""Decide a search again from its journal and compare: the same reports must give the same decisions, bit for bit."""

from dataclasses import dataclass, fields

from coharness.records.errors import ReplayMismatch
from coharness.tune.core import Context, beginning, decide, ending
from coharness.tune.events import Decision, Ended, Event, Report
from coharness.tune.files import SearchDir
from coharness.tune.journal import read_journal
from coharness.tune.state import SearchState


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What was compared."""

    num_reports: int
    num_decisions: int


def replay(search: SearchDir, ctx: Context) -> Replayed:
    """Decide everything again.

    Raises:
        ReplayMismatch: a decision differs from the recorded one; the message names the first difference.
    """
    state = SearchState()
    num_decisions = 0
    for number, frame in enumerate(read_journal(search.journal_path), start=1):
        for place, event in enumerate(frame):
            expected = _expected(state, ctx, event)
            if expected is not None and expected != event:
                raise ReplayMismatch(
                    f"{search.journal_path}, frame {number}, event {place + 1}: {_difference(event, expected)}"
                )
            num_decisions += isinstance(event, Decision)
            ctx.take(state, event)
    return Replayed(num_reports=state.num_reports, num_decisions=num_decisions)


def _expected(state: SearchState, ctx: Context, event: Event) -> Event | None:
    """What the core decides where the journal holds `event`; None for what is not decided."""
    match event:
        case Report():
            return None
        case Decision() if event.slot >= len(state.slots):
            return beginning(ctx)[event.slot]
        case Decision():
            return decide(state, ctx, event.slot)
        case Ended():
            return ending(state, ctx) or Ended(why="nothing: the search goes on")


def _difference(recorded: Event, decided: Event) -> str:
    if type(recorded) is not type(decided):
        return f"the run recorded {type(recorded).__name__}, the replay decided {type(decided).__name__}"
    for f in fields(recorded):
        was, now = getattr(recorded, f.name), getattr(decided, f.name)
        if was != now:
            return f"{type(recorded).__name__}.{f.name}: the run recorded {was!r}, the replay decided {now!r}"
    raise AssertionError("two equal events differ")
