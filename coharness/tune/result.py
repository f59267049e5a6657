"""What a search found: the best member with its setting, its checkpoint, and how the population got there."""

from typing import Any

from coharness.evolution.diversity import mean_disagreement, useful_diversity
from coharness.evolution.lineage import effective_size
from coharness.evolution.time_bias import meter
from coharness.tune.core import Context, best_member
from coharness.tune.files import SearchDir, write_json
from coharness.tune.state import SearchState

PASSED = 0.5
"""A case whose score is above this counts as passed."""


def result_of(ctx: Context, state: SearchState) -> dict[str, Any]:
    """The result as JSON values."""
    found = best_member(state)
    sign = ctx.config.sign
    best: dict[str, Any] | None = None
    if found is not None:
        segment, score = found
        made = state.segments[segment]
        best = {
            "member": made.member,
            "checkpoint": segment,
            ctx.config.score.metric: sign * score,
            "hyperparameters": dict(made.hyperparameters),
        }
    members = [slot.plan.member for slot in state.slots]
    return {
        "why": state.ended,
        "best": best,
        "highest_seen": None if state.best is None else {"checkpoint": state.best[1], "score": sign * state.best[0]},
        "steps": state.num_steps,
        "reports": state.num_reports,
        "copies": state.num_copies,
        "failures": state.num_failures,
        "founders": round(effective_size(state.births, members, 0.0), 3),
        "diversity": _diversity(ctx, state),
        "time_bias": _time_bias(state),
        "members": [
            {
                "member": slot.plan.member,
                "steps": slot.steps,
                "score": None if slot.score is None else sign * slot.score,
                "hyperparameters": dict(slot.plan.hyperparameters),
                "checkpoint": slot.checkpoint,
            }
            for slot in state.slots
        ],
    }


def _diversity(ctx: Context, state: SearchState) -> dict[str, float] | None:
    """How much the members' passed cases differ, and what that is worth; None where no cases are scored."""
    cases = ctx.config.score.cases
    passed = [[float(slot.metrics[case] > PASSED) for case in cases] for slot in state.slots if slot.metrics]
    if not cases or not passed:
        return None
    return {"disagreement": round(mean_disagreement(passed), 6), "useful": round(useful_diversity(passed), 6)}


def _time_bias(state: SearchState) -> dict[str, float] | None:
    """Whether quick members left more copies; None before anybody reported."""
    if not state.turns:
        return None
    copied = [parent for birth in state.births.values() for parent in birth.parents]
    found = meter(
        {name: seconds / num for name, (num, seconds) in state.turns.items()},
        {name: num for name, (num, _) in state.turns.items()},
        [parent for parent in copied if parent in state.turns],
    )
    return {"correlation": found.correlation, "p_value": found.p_value, "unevenness": found.unevenness}


def write_result(search: SearchDir, ctx: Context, state: SearchState) -> None:
    """Write result.json."""
    write_json(search.result_path, result_of(ctx, state))
