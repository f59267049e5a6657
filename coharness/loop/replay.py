"""Replay: fold the journal again, ask again at every recorded point, and compare each decision with the recorded one."""

import time
from dataclasses import dataclass
from pathlib import Path

from coharness.loop.build import code_digest, run_sources
from coharness.loop.core import Evolution
from coharness.loop.journal import read_frames
from coharness.loop.run_dir import RunDir
from coharness.loop.state import state_digest
from coharness.records import events as ev
from coharness.records.codec import encode
from coharness.records.errors import ReplayMismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay found."""

    num_events: int
    num_decisions: int
    "Directives that were recomputed and found equal."
    state_digest: str
    recorded_digest: str | None
    "What the run noted when it last stopped; None where it never did."
    same_code: bool
    "Whether the run was made by the code that replays it."
    wall_s: float


def replay_run(run_dir: Path) -> ReplayReport:
    """Recompute every decision of a run.

    Raises:
        ReplayMismatch: a decision, or the state at the end, comes out otherwise; the message names the first difference.
        JournalError: the journal is damaged.
    """
    began = time.perf_counter()
    run = RunDir.open(run_dir)
    config = run.load_config()
    evolution = Evolution(config, run_sources(config))
    num_events = num_decisions = 0
    expected: list[ev.Directive] = []
    same_code = True
    last_seq = 0
    for frame in read_frames(run.journal_dir):
        last_seq = frame.seq
        for event in frame.events:
            num_events += 1
            where = f"frame {frame.seq}, event {num_events}"
            if isinstance(event, ev.Issued):
                if not expected:
                    raise ReplayMismatch(f"{where}: the run issued {_short(event.directive)}, the replay nothing")
                wanted = expected.pop(0)
                if wanted != event.directive:
                    raise ReplayMismatch(
                        f"{where}: the run issued {_short(event.directive)}, the replay {_short(wanted)}"
                        f"{_difference(event.directive, wanted)}"
                    )
                num_decisions += 1
            elif expected:
                raise ReplayMismatch(f"{where}: the replay issues {_short(expected[0])}, the run did not")
            if isinstance(event, ev.Asked):
                # The engine asks first and notes the question with its answer.
                expected = evolution.ask(event.capacity)
            evolution.tell(event)
            if isinstance(event, ev.Started):
                same_code = event.code_digest == code_digest()
    digest = state_digest(evolution.state)
    snapshot = run.read_snapshot()
    recorded = snapshot["state_digest"] if snapshot and snapshot["seq"] == last_seq else None
    if recorded is not None and recorded != digest:
        raise ReplayMismatch(f"the state at the end has the digest {digest}, the run noted {recorded}")
    return ReplayReport(
        num_events=num_events,
        num_decisions=num_decisions,
        state_digest=digest,
        recorded_digest=recorded,
        same_code=same_code,
        wall_s=time.perf_counter() - began,
    )


def _short(directive: ev.Directive) -> str:
    text = repr(directive)
    return text if len(text) < 300 else f"{text[:300]}…"


def _difference(recorded: ev.Directive, computed: ev.Directive) -> str:
    """Where two directives of one kind first differ."""
    if type(recorded) is not type(computed):
        return ""
    a, b = encode(type(recorded), recorded), encode(type(computed), computed)
    path: list[str] = []
    while isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        index = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
        if index is None:
            return ""
        path.append(str(index))
        a, b = a[index], b[index]
    return f"; they differ at [{'.'.join(path)}]: {str(a)[:80]!r} against {str(b)[:80]!r}"
