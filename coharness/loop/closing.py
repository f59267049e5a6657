"""The end of a run, and housekeeping: when nothing more is due, and which weights nobody needs."""

from coharness.config.schema import Schedule
from coharness.loop import judging
from coharness.loop.choosing import is_choosing
from coharness.loop.context import Context
from coharness.loop.stage import is_closing, is_out_of_budget, trains_weights
from coharness.loop.state import State
from coharness.records import events as ev
from coharness.records.policy import VersionRef
from coharness.records.training import MergeJob, RepairJob, TrainJob

MAX_FAILED_STREAK = 512
"""Items that may fail in a row before a run gives up: what breaks every item will not mend itself."""
SPARE_VERSIONS = 8
"""Dead versions that are let to gather before they are retired together."""


def due_retirement(state: State) -> ev.Retire | None:
    """Weights that no member, champion, test, job, milestone, incident or running item needs."""
    if len(state.versions) < SPARE_VERSIONS:
        return None
    alive = live_versions(state)
    kept = {version.weights.uri for ref, version in state.versions.items() if ref in alive}
    dead = {v.weights.uri for v in state.versions.values() if v.weights.uri not in kept and v.weights.uri}
    return ev.Retire(uris=tuple(sorted(dead))) if len(dead) >= SPARE_VERSIONS else None


def live_versions(state: State) -> set[VersionRef]:
    """Versions that somebody may still ask for."""
    alive = {m.head.ref for m in state.members}
    alive |= {item.version for item in state.running.values()}
    alive |= {m.serving.version for m in state.milestones}
    alive |= {ref for ref, _ in state.merges_ready}
    alive |= {p for _, parents in state.merges_ready for p in parents}
    for serving in (state.champion, state.previous_champion):
        if serving is not None:
            alive.add(serving.version)
    for test in state.tests.values():
        alive |= {test.proposal.challenger.version, test.proposal.incumbent.version}
    for kept in (*(i.heads for i in state.incidents), *(t.heads for t in state.terms)):
        alive |= set(kept)
    for job in state.jobs.values():
        if isinstance(job, RepairJob):
            continue
        alive |= {job.start.ref} if isinstance(job, TrainJob) else {p.ref for p in job.parents}
    return alive


def due_finish(state: State, ctx: Context) -> ev.Finish | None:
    """The end: the budget is closing and nothing is in flight or due; or nothing but failures came back for long."""
    if state.failed_streak >= MAX_FAILED_STREAK:
        return ev.Finish(reason=f"{state.failed_streak} items in a row failed, the last one at {state.last_failure}")
    stopped = judging.stop_reason(state)
    if stopped is not None and not state.running and not state.jobs:
        return ev.Finish(reason=stopped)
    if ctx.config.schedule is Schedule.FROZEN and not state.running:
        return ev.Finish(reason="nothing evolves in this schedule")
    if not is_closing(state, ctx) or state.running or state.jobs or state.tests:
        return None
    if any(m.waiting for m in state.members) and trains_weights(state, ctx):
        return None
    if is_choosing(state, ctx) and not is_out_of_budget(state, ctx):
        return None
    if any(isinstance(job, MergeJob) for job in state.jobs.values()):
        return None
    spent = state.elapsed_s < ctx.config.budget.minutes * 60
    return ev.Finish(reason="the budget of rollouts is spent" if spent else "the time is up")
