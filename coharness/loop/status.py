"""A run's state in a few JSON values, for people who watch it."""

from collections import Counter
from pathlib import Path
from typing import Any

from coharness.loop.context import Context
from coharness.loop.ranking import Ranking
from coharness.loop.stage import is_closing
from coharness.loop.state import State
from coharness.records.judging import Rung
from coharness.records.work import Purpose


def status_of(state: State, ctx: Context) -> dict[str, Any]:
    """What the run is doing now."""
    in_flight: Counter[str] = Counter()
    for item in state.running.values():
        in_flight["rollout" if item.purpose in (Purpose.TRAIN, Purpose.FILL, Purpose.TRACK) else "gate"] += 1
    in_flight["train"] = len(state.jobs)
    ranking = Ranking(state, ctx)
    lead = ranking.lead
    fit = None
    if lead is not None:
        member = state.member(lead.version.policy)
        fit = ranking.fitness(member, lead.harness).mean if member else None
    kinds = Counter(v.kind.value for v in state.verdicts)
    phase = "starting"
    if state.run_id:
        phase = "running"
    if state.run_id and is_closing(state, ctx):
        phase = "closing"
    if state.stop_requested:
        phase = "stopping"
    if state.finished:
        phase = "done"
    # A reading is of whoever was champion then; the best serving of it stands for a champion that came since.
    readings = [correct / tried for correct, tried in state.track.values() if tried]
    tracked = state.track.get(state.champion) if state.champion else None
    track = tracked[0] / tracked[1] if tracked and tracked[1] else max(readings, default=None)
    return {
        "run": state.run_id,
        "track": track,
        "phase": phase,
        "finished": state.finished,
        "schedule": ctx.config.schedule.value,
        "epoch": state.epoch,
        "elapsed_s": state.elapsed_s,
        "rollouts": state.charged,
        "budget": ctx.config.budget.rollouts,
        "updates": state.ticks,
        "in_flight": dict(in_flight),
        "champion": str(state.champion) if state.champion else "",
        "promotions": sum(how == "promoted" for _, _, how in state.champion_history),
        "lead": str(lead) if lead else "",
        "lead_fitness": fit,
        "staleness_max": state.staleness_max,
        "throughput": sum(state.episodes.values()) / state.elapsed_s if state.elapsed_s else 0.0,
        "tokens": state.tokens,
        "cpu_s": state.cpu_s,
        "accepted": kinds["accepted"],
        "rejected": kinds["rejected"],
        "withdrawn": kinds["withdrawn"],
        "open_tests": len(state.tests),
        "failed_items": state.failed,
        "members": [
            {
                "policy": m.policy,
                "version": m.head.ref.step,
                "born": m.born,
                "fitness": max(ranking.of_policy(m.policy), 0.0) if ranking.of_policy(m.policy) >= 0 else None,
                "learning_rate": m.hyperparameters.get("learning_rate"),
            }
            for m in state.members
        ],
        "slots": [{"harness": s.harness, "practised": sum(s.practised.values())} for s in state.slots],
        "judge": {
            "version": state.judge,
            "response": state.response.rung.value,
            "alarms": len(state.incidents),
            "mended": sum(term.how == "mended" for term in state.terms),
            "refused": len(state.refused_judges),
        }
        if state.judge
        else None,
        "last_event": _last_event(state),
    }


def _last_event(state: State) -> str:
    if state.finished:
        return f"finished: {state.finished}"
    if state.incidents and state.response.rung is not Rung.WATCH:
        alarm = state.incidents[-1].alarm
        return f"alarm about the judge ({', '.join(alarm.causes)}); the response is {state.response.rung.value}"
    if state.verdicts:
        verdict = state.verdicts[-1]
        return f"proposal {verdict.proposal} {verdict.kind.value}: {verdict.reason}"
    if state.champion is not None:
        return f"champion is {state.champion}"
    return "starting"


def status_from_journal(run_dir: Path) -> dict[str, Any]:
    """The same from the files alone."""
    from coharness.loop.build import fold_run
    from coharness.loop.run_dir import RunDir

    evolution = fold_run(RunDir.open(run_dir))
    return status_of(evolution.state, evolution.context)
