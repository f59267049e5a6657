"""The core: `ask` says what to do next, `tell` is told what happened. Pure but for its own state; no clock, no I/O.

    tell(event) ──► state ──► ask(capacity) ──► directives ──► Issued events ──► tell ...

`ask` changes nothing, and every draw in it comes from the run's seed and the state's counters, so the same state and capacity
give the same answer: a journal can be replayed and every decision compared. It answers with at most one *structural* directive
at a time (a verdict, a clone, a new test, ...), so that two of them never contradict each other; the caller tells it and asks
again until the answer is empty.
"""

from collections.abc import Iterable

from coharness.config.schema import RunConfig, Schedule
from coharness.loop import choosing, closing, gating, harnesses, judging, population, practice
from coharness.loop.context import Context, build_context
from coharness.loop.fold import apply
from coharness.loop.items import ItemMaker
from coharness.loop.ranking import Ranking
from coharness.loop.stage import is_closing
from coharness.loop.state import State
from coharness.records import events as ev
from coharness.records.judging import Alarm
from coharness.reward.monitors.watch import Watch
from coharness.tasks.sources import TaskSources


class Evolution:
    """One run's core."""

    def __init__(self, config: RunConfig, sources: TaskSources) -> None:
        self.context: Context = build_context(config, sources)
        self.state = State()
        self._ranking: tuple[int, Ranking] | None = None
        self._read_alarm: tuple[Watch, Alarm | None] | None = None

    def tell(self, event: ev.Event) -> None:
        """Fold one event."""
        apply(self.state, self.context, event)

    def ask(self, capacity: ev.Capacity) -> list[ev.Directive]:
        """What is due now; empty when there is nothing to do but wait."""
        state, ctx = self.state, self.context
        if state.finished or state.stop_requested or not state.run_id:
            return []
        if state.failed_streak >= closing.MAX_FAILED_STREAK:
            finish = closing.due_finish(state, ctx)
            return [finish] if finish else []
        structural = self._structural()
        if structural is not None:
            return [structural]
        directives: list[ev.Directive] = []
        repair = judging.due_repair(state, ctx, capacity.num_jobs)
        # One job an answer: each takes its name from the state's counter.
        job = repair or practice.due_training(state, ctx, capacity.num_jobs)
        if job is not None:
            directives.append(job)
        make = ItemMaker(ctx.config, state.next_item)
        items = gating.lease_pairs(state, ctx, make, capacity.num_items)
        if job is None:
            items += practice.lease_practice(state, ctx, make, capacity.num_items - len(items))
        if items:
            directives.append(ev.Lease(items=tuple(items)))
        if not directives:
            finish = closing.due_finish(state, ctx)
            if finish is not None:
                directives.append(finish)
        return directives

    def _structural(self) -> ev.Directive | None:
        state, ctx = self.state, self.context
        slot = harnesses.due_slot(state, ctx)
        if slot is not None:
            return slot
        judged = judging.due_appointment(state, ctx) or judging.due_response(state, self._alarm)
        if judged is not None:
            return judged
        make = ItemMaker(ctx.config, state.next_item)
        verdict = gating.due_verdict(state, ctx)
        if verdict is not None:
            return verdict
        if ctx.config.schedule is Schedule.FROZEN:
            return None
        cheap = (
            practice.due_track(state, ctx, make)
            or closing.due_retirement(state)
            or harnesses.due_levels(state, ctx)
            or gating.due_null(state, ctx)
            or gating.due_rollback(state, ctx)
            or population.due_assessment(state, ctx, make)
        )
        if cheap is not None:
            return cheap
        if is_closing(state, ctx) and (state.jobs or state.fill_pending or any(m.waiting for m in state.members)):
            return None
        ranking = self._ranked()
        return (
            population.due_exploit(state, ctx, ranking)
            or population.due_merge(state, ctx, ranking)
            or gating.due_race(state, ctx, ranking)
            or choosing.due_choice(state, ctx, ranking, make)
            or (None if choosing.is_choosing(state, ctx) else gating.due_challenge(state, ctx, ranking))
            or harnesses.due_turnover(state, ctx, ranking)
            or harnesses.due_proposal(state, ctx, ranking)
        )

    def _alarm(self, watch: Watch) -> Alarm | None:
        """The monitors' alarm; a cache of a pure reading, since a bootstrap stands behind one that a shortcut must explain."""
        if self._read_alarm is None or self._read_alarm[0] is not watch:
            self._read_alarm = (watch, judging.read_alarm(watch, self.context))
        return self._read_alarm[1]

    def _ranked(self) -> Ranking:
        """The ranking of this state; a cache of a pure reading, keyed by the number of events."""
        if self._ranking is None or self._ranking[0] != self.state.num_events:
            self._ranking = (self.state.num_events, Ranking(self.state, self.context))
        return self._ranking[1]


def fold(events: Iterable[ev.Event], config: RunConfig, sources: TaskSources) -> Evolution:
    """The core after these events."""
    evolution = Evolution(config, sources)
    for event in events:
        evolution.tell(event)
    return evolution
