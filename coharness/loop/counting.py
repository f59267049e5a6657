"""Counting the pairs of a paired test, in the order of their indices.

Outcomes arrive in any order; what a look sees must not depend on it. So a pair is counted when all pairs before it are, and pairs
that tie by construction, or were lost to a failure, are passed over as they come.
"""

from coharness.loop.context import Context
from coharness.loop.pairs import is_tie, pair_cell
from coharness.loop.state import OpenTest
from coharness.records.proposals import ProposalKind
from coharness.records.work import WorkItem
from coharness.stats.sequential import PairedCounts

WIN, LOSS, TIE = (PairedCounts(wins=w, losses=lo, ties=t) for w, lo, t in ((1, 0, 0), (0, 1, 0), (0, 0, 1)))


def arm_ended(test: OpenTest, ctx: Context, item: WorkItem, correct: bool, is_done: bool) -> None:
    """Note the end of one arm of a pair; a failed arm makes its pair void, never a loss."""
    test.running -= 1
    if not is_done:
        test.void.add(item.pair)
        test.half.pop(item.pair, None)
    elif item.pair not in test.void:
        first = test.half.pop(item.pair, None)
        if first is None:
            test.half[item.pair] = (item.arm, correct)
            return
        mine, theirs = (correct, first[1]) if item.arm == "challenger" else (first[1], correct)
        difference = int(mine) - int(theirs)
        if item.pair < 0:
            test.anchors = test.anchors + _count(difference)
            return
        test.done[item.pair] = (item.task.family, difference)
    advance(test, ctx)


def advance(test: OpenTest, ctx: Context) -> None:
    """Count main pairs in index order as far as they are known, so that the order of arrival cannot bias a look."""
    limit = max_pairs(test, ctx)
    while test.prefix < limit:
        index = test.prefix
        if index in test.void:
            test.void.discard(index)
            test.prefix += 1
            if test.prefix == limit:
                test.look = (test.counts, dict(test.by_family), test.anchors)
            continue
        if index in test.done:
            family, difference = test.done.pop(index)
        elif is_tie(test.proposal, ctx, index):
            family, difference = pair_cell(test.proposal, ctx, index)[0], 0
        else:
            return
        test.prefix += 1
        one = _count(difference)
        test.counts = test.counts + one
        test.by_family[family] = test.by_family[family] + one if family in test.by_family else one
        if test.counts.num_pairs % ctx.config.gate.look_every == 0 or test.prefix == limit:
            test.look = (test.counts, dict(test.by_family), test.anchors)


def max_pairs(test: OpenTest, ctx: Context) -> int:
    """Most pairs that a test may use."""
    gate = ctx.config.gate
    match test.proposal.kind:
        case ProposalKind.MERGE:
            return ctx.config.evolution.race_pairs
        case ProposalKind.NULL:
            return gate.null_pairs
        case ProposalKind.ROLLBACK:
            return gate.rollback_pairs
        case _:
            return gate.max_pairs


def _count(difference: int) -> PairedCounts:
    return WIN if difference > 0 else LOSS if difference < 0 else TIE
