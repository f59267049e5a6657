"""Pairs of a paired test: which task each index draws, and which pairs tie by construction.

The cell of a pair is a pure function of (proposal, index), iid from the fixed evaluation mix, so the draw cannot depend on
an outcome. Where an edit leaves a family's compiled prompt as it was, both arms are one and the same greedy computation at
the same weights: the pair is a tie and need not be run.
"""

from collections.abc import Container

from coharness.harness.compile import serving_format
from coharness.loop.context import Context
from coharness.loop.state import State
from coharness.records.ids import derive_seed
from coharness.records.proposals import Proposal, ProposalKind
from coharness.records.task import Pool, Task
from coharness.records.work import Purpose
from coharness.tasks.draw import draw_task

MAX_REDRAWS = 64
"""Draws of an unused task before a small pool is taken to be exhausted; then a task may come again, and says so by its id."""


def pair_cell(proposal: Proposal, ctx: Context, index: int) -> tuple[str, int]:
    """(family, level) of a pair."""
    return ctx.space.mix[derive_seed("pair", ctx.config.seed, proposal.id, index) % len(ctx.space.mix)]


def is_tie(proposal: Proposal, ctx: Context, index: int) -> bool:
    """Whether both arms of a pair are the same computation."""
    return proposal.kind is ProposalKind.HARNESS and pair_cell(proposal, ctx, index)[0] not in proposal.families


def pair_task(used: Container[str], proposal: Proposal, ctx: Context, index: int) -> Task:
    """The task of a pair: a GATE task that is not among the used ones, or for a negative index a fixed ANCHOR task."""
    family, level = pair_cell(proposal, ctx, index)
    if index < 0:
        return draw_task(ctx.sources, family, level, Pool.ANCHOR, derive_seed("anchor", index))
    task = draw_task(ctx.sources, family, level, Pool.GATE, derive_seed("gate", ctx.config.seed, proposal.id, index))
    for attempt in range(MAX_REDRAWS):
        if task.id not in used:
            break
        seed = derive_seed("gate", ctx.config.seed, proposal.id, index, attempt)
        task = draw_task(ctx.sources, family, level, Pool.GATE, seed)
    return task


def purpose_of(proposal: Proposal, index: int) -> Purpose:
    """What the items of a pair run for."""
    if index < 0:
        return Purpose.ANCHOR
    match proposal.kind:
        case ProposalKind.MERGE:
            return Purpose.RACE
        case ProposalKind.NULL:
            return Purpose.NULL
        case _:
            return Purpose.GATE


def served_format(state: State, ctx: Context, proposal: Proposal, arm: str, family: str) -> str:
    """The answer format of one arm."""
    serving = proposal.challenger if arm == "challenger" else proposal.incumbent
    return serving_format(state.harnesses[serving.harness], ctx.sources, family)
