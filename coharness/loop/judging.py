"""The judge's part of `ask`: how groups are judged, what follows an alarm, when the judge is mended, who takes over.

    audits (in outcomes) ─► Watch ─► Respond ─► Repair ─► MendedJudge ─► Appoint

The fold feeds the monitors; everything that follows is decided here, from the state alone, and journaled as a directive before
it takes effect. A judge's version stands in every item, so that one in flight is scored by the judge it was issued under.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from coharness.config.reward import MonitorSection
from coharness.config.schema import RunConfig
from coharness.loop.context import Context, monitor_horizon
from coharness.loop.stage import is_closing
from coharness.loop.state import Incident, JudgeTerm, State
from coharness.records import events as ev
from coharness.records.harness import Harness
from coharness.records.ids import JobId, JudgeId, derive_seed, hash_unit
from coharness.records.judging import Alarm, Rung
from coharness.records.training import JobResult, RepairJob
from coharness.records.work import Judging, Outcome, WorkItem
from coharness.reward.monitors.response import Response
from coharness.reward.monitors.watch import Watch, WatchSettings
from coharness.reward.reflection.mend import verdict
from coharness.reward.score import needs_judge, rule_of
from coharness.stats.online_fdr import gamma

MIN_CONFLICT_GROUPS = 24
"""Audited groups with a conflict that a repair waits for, each time anew: fewer questions give no test that could pass."""


# Set up -------------------------------------------------------------------------------------------------------------


def watch_settings(config: RunConfig) -> WatchSettings:
    """The monitors' settings of a run."""
    monitor = config.reward.monitor
    return WatchSettings(
        step_audits=monitor.step_audits,
        warmup_steps=monitor.warmup_steps,
        healthy_conflict_rate=monitor.healthy_conflict_rate,
        horizon=monitor_horizon(config),
        alpha=monitor.alpha,
        high=monitor.high,
        shortcut_bound=monitor.shortcut_bound,
        window=monitor.window,
    )


def begin(state: State, ctx: Context, judge: JudgeId) -> None:
    """Set the judge of a run that starts."""
    if not judge:
        return
    monitor: MonitorSection = ctx.config.reward.monitor
    state.judge = judge
    state.terms.append(JudgeTerm(judge=judge, since=0, how="start"))
    state.watch = Watch(settings=watch_settings(ctx.config), divergence=ctx.divergence)
    state.response = Response(
        patience=monitor.patience, calm=monitor.calm, ladder=tuple(Rung(name) for name in ctx.config.reward.ladder)
    )


# Ask ----------------------------------------------------------------------------------------------------------------


def judging_of(state: State, ctx: Context, harness: Harness, item: int) -> Judging | None:
    """How a training group is judged; None where its genome's rule reads no judge."""
    rule = rule_of(harness.reward)
    if not state.judge or rule is None or not needs_judge(rule):
        return None
    share = ctx.config.reward.monitor.audit_share * state.response.audit_factor
    return Judging(
        judge=state.judge,
        counts=state.response.judge_counts,
        audited=hash_unit("audited", ctx.config.seed, item) < share,
    )


def read_alarm(watch: Watch, ctx: Context) -> Alarm | None:
    """The alarm of the monitors' present step, if any."""
    return watch.alarm(np.random.default_rng(derive_seed("watch", ctx.config.seed, *watch.observations)))


def due_response(state: State, alarm_of: Callable[[Watch], Alarm | None]) -> ev.Respond | None:
    """What follows from the step that the monitors have just finished; `alarm_of` is `read_alarm`, which may be a cache."""
    watch, before = state.watch, state.response
    if watch is None or watch.step <= state.responded_at or before.rung is Rung.STOP:
        return None
    alarm = alarm_of(watch)
    after = before.stepped(watch.step, alarmed=alarm is not None)
    if alarm is None and after == before:
        return None
    judge = state.judge
    if after.rung is Rung.ROLL_BACK and before.rung is not Rung.ROLL_BACK:
        judge = _former(state)
    return ev.Respond(step=watch.step, alarm=alarm, rung=after.rung, judge=judge, findings=watch.findings())


def due_repair(state: State, ctx: Context, num_jobs: int) -> ev.Repair | None:
    """The repair that an alarm asked for, once there are enough audited groups."""
    if not state.repair_due or num_jobs <= 0 or is_closing(state, ctx) or state.mended is not None:
        return None
    if state.new_conflicts < MIN_CONFLICT_GROUPS:
        return None
    # The latest that fill the window. One seed a judge: what gates its first candidate gates the next ones too.
    groups = max(1, ctx.config.reward.monitor.window // ctx.config.training.group_size)
    items = tuple(state.audited)[-groups:]
    seed = derive_seed("mend", ctx.config.seed, state.judge)
    return ev.Repair(job=RepairJob(id=JobId(state.next_job), judge=state.judge, items=items, seed=seed))


def due_appointment(state: State, ctx: Context) -> ev.Appoint | None:
    """The verdict on a mended judge."""
    mended = state.mended
    if mended is None:
        return None
    if mended.incumbent != state.judge:
        return ev.Appoint(judge=mended.judge, accepted=False, reason=f"{mended.incumbent} is no longer the judge")
    # Candidates for one judge's place are tested on questions that overlap, so they share one level.
    level = ctx.config.reward.monitor.repair_level
    accepted, reason = verdict(mended, level * gamma(state.refused_in_term + 1), harm_level=level)
    return ev.Appoint(judge=mended.judge, accepted=accepted, reason=reason)


def stop_reason(state: State) -> str | None:
    """Why training stops, where the response says so."""
    if state.response.rung is not Rung.STOP:
        return None
    return "the monitors of the judge stopped it; look at `coharness judge audit`, mend the judge, and start anew"


# Fold ---------------------------------------------------------------------------------------------------------------


def audited(state: State, item: WorkItem, outcome: Outcome) -> None:
    """Feed the audits of a done group; those of a judge that is no longer asked are no observation."""
    judging = item.judging
    if state.watch is None or judging is None or judging.judge != state.judge or not outcome.audits:
        return
    high = state.watch.settings.high
    state.watch = state.watch.observed(outcome.audits)
    state.audited.append(item.id)
    state.new_conflicts += any(audit.judged >= high and not audit.verified for audit in outcome.audits)


def assessed(state: State, correct: int, tried: int) -> None:
    """Feed an assessment of the members, which no judge touches."""
    if state.watch is not None and tried:
        state.watch = state.watch.benchmarked(correct / tried)


def responded(state: State, event: ev.Respond) -> None:
    """Move the ladder."""
    assert state.watch is not None, "a run without a judge responds to nothing"
    before = state.response
    state.responded_at = event.step
    state.response = replace(
        before,
        rung=event.rung,
        since=before.since if event.rung is before.rung else event.step,
        last_alarm=before.last_alarm if event.alarm is None else event.step,
    )
    if event.alarm is not None:
        is_first = not any(i.judge == state.judge for i in state.incidents)
        heads = tuple(m.head.ref for m in state.members) if is_first else ()
        state.incidents.append(
            Incident(alarm=event.alarm, charged=state.charged, judge=state.judge, rung=event.rung, heads=heads)
        )
        state.repair_due = state.repair_due or event.rung is Rung.REPAIR
    changed = event.judge != state.judge
    if changed:
        _change(state, event.judge, "rolled back")
    if event.alarm is not None or changed:
        state.watch = state.watch.restarted(forget=changed)


def repairing(state: State, job: RepairJob) -> None:
    """A repair begins."""
    state.jobs[job.id] = job
    state.next_job += 1
    state.repair_due = False
    state.new_conflicts = 0
    state.count_operator("judge.mend", 0)


def repaired(state: State, result: JobResult) -> None:
    """A repair ended; one that broke is asked for again by the next alarm."""
    state.mended = result.mended
    if result.mended is None:
        state.count_operator("judge.mend", 2)


def appointed(state: State, event: ev.Appoint) -> None:
    """The mended judge takes over, or does not."""
    state.mended = None
    state.count_operator("judge.mend", 1 if event.accepted else 2)
    if not event.accepted:
        state.refused_judges.append((event.judge, event.reason))
        state.refused_in_term += 1
        return
    _change(state, event.judge, "mended")
    assert state.watch is not None, "a judge was mended, so it was watched"
    state.watch = state.watch.restarted(forget=True)
    state.response = state.response.mended(state.watch.step)


def _change(state: State, judge: JudgeId, how: str) -> None:
    state.judge = judge
    heads = tuple(m.head.ref for m in state.members)
    state.terms.append(JudgeTerm(judge=judge, since=state.charged, how=how, heads=heads))
    state.audited.clear()
    state.new_conflicts = state.refused_in_term = 0
    state.repair_due = False


def _former(state: State) -> JudgeId:
    """The judge before the present one: the last that a gate let in, or the first; the present one where there is no other."""
    line = [term.judge for term in state.terms if term.how != "rolled back"]
    place = line.index(state.judge) if state.judge in line else 0
    return line[max(place - 1, 0)]
