"""Which levers a schedule moves at this point of the run: pure readings of the state."""

from coharness.config.schema import Schedule
from coharness.loop.context import Context
from coharness.loop.state import State


def _first_stage(state: State, ctx: Context) -> bool:
    return state.charged < ctx.config.budget.rollouts / 2


def trains_weights(state: State, ctx: Context) -> bool:
    """Whether training groups go to trainers now."""
    match ctx.config.schedule:
        case Schedule.ASYNC | Schedule.WEIGHTS_ONLY | Schedule.RANDOMIZED:
            return True
        case Schedule.STAGEWISE:
            weights_first = ctx.config.stagewise.order == "weights_first"
            return _first_stage(state, ctx) == weights_first
        case Schedule.HARNESS_ONLY | Schedule.FROZEN:
            return False


def evolves_harness(state: State, ctx: Context) -> bool:
    """Whether harnesses are proposed, moved and spawned now."""
    match ctx.config.schedule:
        case Schedule.ASYNC | Schedule.HARNESS_ONLY:
            return True
        case Schedule.STAGEWISE:
            harness_first = ctx.config.stagewise.order == "harness_first"
            return _first_stage(state, ctx) == harness_first
        case Schedule.WEIGHTS_ONLY | Schedule.RANDOMIZED | Schedule.FROZEN:
            return False


def is_closing(state: State, ctx: Context) -> bool:
    """Whether what is left of the budget belongs to the last assessment and challenge: not one more training group fits."""
    return (
        ctx.config.schedule is Schedule.FROZEN
        or state.charged + ctx.config.training.group_size > ctx.config.budget.rollouts - ctx.tests_reserve
        or state.elapsed_s >= ctx.config.budget.minutes * 60
    )


def is_out_of_budget(state: State, ctx: Context) -> bool:
    """Whether not even a test may issue more episodes."""
    grace_s = 60.0
    return state.charged > ctx.config.budget.rollouts - 2 or state.elapsed_s >= ctx.config.budget.minutes * 60 + grace_s
