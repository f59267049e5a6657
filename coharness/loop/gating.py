"""The gate's part of `ask`: which tests to open, which pairs to run, and what the evidence says.

Tests of harness edits and of pairings share one run-level error budget (e-LOND): each is numbered when it opens and held
against its level, read when it is looked at. Races of merges, the A/A test and the rollback watch spend none of it.
"""

import math

from coharness.loop.context import Context
from coharness.loop.counting import max_pairs
from coharness.loop.items import ItemMaker
from coharness.loop.pairs import is_tie, pair_task, purpose_of, served_format
from coharness.loop.ranking import Ranking
from coharness.loop.stage import is_closing, is_out_of_budget
from coharness.loop.state import OpenTest, State
from coharness.records import events as ev
from coharness.records.ids import PolicyId, ProposalId, derive_seed
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.work import Serving, WorkItem
from coharness.stats.online_fdr import ELond
from coharness.stats.sequential import GateDecision, GateVerdict, SequentialRule

WINDOW = 96
"""Pairs a test keeps issued ahead of what is counted: enough to fill batches, few enough to waste little at a decision."""
ANCHOR_EVERY = 8
ROLLBACK_EVERY = 8
PROMISING_Z = 1.0
"""The champion is challenged when the lead is better with a posterior probability of about .84."""


def level_of(test: OpenTest, state: State, ctx: Context) -> float:
    """The error level a test is held against now."""
    gate = ctx.config.gate
    match test.proposal.kind:
        case ProposalKind.MERGE:
            return 1 / ctx.config.evolution.race_evalue
        case ProposalKind.NULL | ProposalKind.ROLLBACK:
            return gate.fdr_alpha
        case _:
            assert test.proposal.test_index is not None
            return ELond(alpha=gate.fdr_alpha).level(test.proposal.test_index, state.num_rejections)


def read_test(test: OpenTest, state: State, ctx: Context) -> tuple[GateDecision, float] | None:
    """What the rule says at the last whole look, with the level it was held against; None before the first look."""
    if test.look is None:
        return None
    gate = ctx.config.gate
    level = level_of(test, state, ctx)
    rule = SequentialRule(
        alpha=level,
        look_every=gate.look_every,
        max_pairs=min(max_pairs(test, ctx), test.look[0].num_pairs) if test.prefix >= max_pairs(test, ctx) else 10**9,
        min_effect=gate.min_effect,
        futility=gate.futility,
        harm_delta=gate.harm_delta,
        veto=gate.veto,
    )
    return rule.decide(*test.look), level


def due_verdict(state: State, ctx: Context) -> ev.Decide | None:
    """The verdict of a test that is decided, or that can go no further."""
    for test in state.tests.values():
        reading = read_test(test, state, ctx)
        if reading is not None:
            decision, level = reading
            if decision.verdict is not GateVerdict.CONTINUE:
                accepted = decision.verdict is GateVerdict.ACCEPT
                return _decide(
                    test, VerdictKind.ACCEPTED if accepted else VerdictKind.REJECTED, _reason(decision), decision, level
                )
        if is_stale(test, state):
            return _decide(test, VerdictKind.WITHDRAWN, "what it compared is no longer there", None, 0.0)
        if (is_ending(test, state, ctx) or is_out_of_budget(state, ctx)) and test.running == 0:
            return _decide(test, VerdictKind.WITHDRAWN, "the budget is spent", None, 0.0)
    return None


def is_ending(test: OpenTest, state: State, ctx: Context) -> bool:
    """Whether a test gets no more pairs because the run is closing; the last challenge alone goes on."""
    return is_closing(state, ctx) and not test.proposal.manifest.get("final")


def is_stale(test: OpenTest, state: State) -> bool:
    """Whether a test's outcome could no longer be used."""
    proposal = test.proposal
    match proposal.kind:
        case ProposalKind.PAIR | ProposalKind.NULL:
            return proposal.incumbent != state.champion
        case ProposalKind.ROLLBACK:
            return proposal.incumbent != state.champion or proposal.challenger != state.previous_champion
        case ProposalKind.MERGE:
            return state.member(PolicyId(proposal.manifest["replaces"])) is None
        case ProposalKind.HARNESS:
            slot = state.slots[proposal.manifest["slot"]]
            now, then = state.harnesses[slot.harness], state.harnesses[proposal.incumbent.harness]
            return (now.prompt, now.episode) != (then.prompt, then.episode)


def _reason(decision: GateDecision) -> str:
    match decision.verdict:
        case GateVerdict.ACCEPT:
            evalue, needed = (math.exp(min(x, 50.0)) for x in (decision.log_evalue, decision.log_threshold))
            return f"better: e-value {evalue:.3g}, {needed:.3g} was needed"
        case GateVerdict.VETO:
            return f"vetoed by {decision.vetoed_by}: evidence of harm"
        case GateVerdict.REJECT_FUTILE:
            return "futile: evidence that the effect is too small to matter"
        case _:
            return "undecided when the pairs ran out"


def _decide(test: OpenTest, kind: VerdictKind, reason: str, decision: GateDecision | None, level: float) -> ev.Decide:
    counts = test.look[0] if test.look and decision else test.counts
    return ev.Decide(
        verdict=Verdict(
            proposal=test.proposal.id,
            kind=kind,
            reason=reason,
            wins=counts.wins,
            losses=counts.losses,
            ties=counts.ties,
            log_evalue=decision.log_evalue if decision else 0.0,
            level=level,
        )
    )


# Opening ------------------------------------------------------------------------------------------------------------


def may_propose(state: State, ctx: Context) -> bool:
    """Whether another test of an edit fits: not too many at once, not too large a share of the budget, not at the end."""
    gate = ctx.config.gate
    num_open = sum(t.proposal.kind is ProposalKind.HARNESS for t in state.tests.values())
    return (
        num_open < gate.concurrent
        and state.charged_tests <= gate.max_share * max(state.charged, 256)
        and not is_closing(state, ctx)
    )


def due_null(state: State, ctx: Context) -> ev.Open | None:
    """The next A/A test, at even spacing over the budget."""
    gate, champion = ctx.config.gate, state.champion
    if state.num_null >= gate.null_tests or champion is None or is_closing(state, ctx):
        return None
    if any(t.proposal.kind is ProposalKind.NULL for t in state.tests.values()):
        return None
    if state.charged < ctx.config.budget.rollouts * (state.num_null + 1) / (gate.null_tests + 1):
        return None
    return _open(state, ProposalKind.NULL, "null", champion, champion)


def due_rollback(state: State, ctx: Context) -> ev.Open | None:
    """The watch over a fresh promotion."""
    if state.previous_champion is None or state.champion is None or is_closing(state, ctx):
        return None
    if state.champion_history[-1][2] != "promoted":
        return None
    for test in state.tests.values():
        if test.proposal.kind is ProposalKind.ROLLBACK:
            return None
    if state.watched == len(state.champion_history):
        return None
    return _open(
        state,
        ProposalKind.ROLLBACK,
        "rollback_watch",
        state.previous_champion,
        state.champion,
        manifest={"promotion": len(state.champion_history)},
    )


def due_challenge(state: State, ctx: Context, ranking: Ranking) -> ev.Open | None:
    """The leading pairing against the champion: once after each assessment, and once more at the end."""
    if any(t.proposal.kind is ProposalKind.PAIR for t in state.tests.values()):
        return None
    closing = is_closing(state, ctx)
    if closing:
        if state.final_challenge or is_out_of_budget(state, ctx):
            return None
    elif state.fill_done_at <= state.last_challenge:
        return None
    lead = ranking.lead
    if lead is None or state.champion is None or ranking.same_computation(lead, state.champion):
        return None
    if not _is_promising(ranking, lead, ctx, closing):
        return None
    return _open(
        state,
        ProposalKind.PAIR,
        "challenge",
        lead,
        state.champion,
        test_index=state.num_tests + 1,
        manifest={"final": True} if closing else {},
    )


def _is_promising(ranking: Ranking, lead: Serving, ctx: Context, closing: bool) -> bool:
    """Whether a challenge is worth its number in the error budget: a test of nothing costs twice the pairs of a won one."""
    mine, theirs = ranking.of_serving(lead), ranking.of_champion
    if mine is None or theirs is None:
        return True
    gain = mine.mean - theirs.mean
    if closing:
        return gain > 0
    return gain >= ctx.config.gate.min_effect and gain / math.sqrt(mine.variance + theirs.variance) >= PROMISING_Z


def due_race(state: State, ctx: Context, ranking: Ranking) -> ev.Open | None:
    """The race of a merged policy against its better parent."""
    if not state.merges_ready or is_closing(state, ctx) or ranking.lead is None:
        return None
    child, parents = state.merges_ready[0]
    present = [p for p in parents if p in state.versions]
    if not present:
        return None
    best = max(present, key=lambda p: ranking.of_policy(p.policy))
    loser = min(
        (m for m in state.members if m.policy != best.policy and m.job is None),
        key=lambda m: ranking.of_policy(m.policy),
        default=None,
    )
    if loser is None:
        return None
    harness = ranking.lead.harness
    return _open(
        state,
        ProposalKind.MERGE,
        f"merge.{state.merge_rules[child.policy]}",
        Serving(child, harness),
        Serving(best, harness),
        manifest={"replaces": loser.policy, "parents": [str(p) for p in parents]},
    )


def _open(
    state: State,
    kind: ProposalKind,
    operator: str,
    challenger: Serving,
    incumbent: Serving,
    *,
    test_index: int | None = None,
    manifest: dict[str, object] | None = None,
) -> ev.Open:
    return ev.Open(
        proposal=Proposal(
            id=ProposalId(state.next_proposal),
            kind=kind,
            operator=operator,
            challenger=challenger,
            incumbent=incumbent,
            test_index=test_index,
            manifest=manifest or {},
        )
    )


# Running ------------------------------------------------------------------------------------------------------------


def lease_pairs(state: State, ctx: Context, make: ItemMaker, num_items: int) -> list[WorkItem]:
    """Items of the open tests' next pairs, at most `num_items` of them and never half a pair."""
    items: list[WorkItem] = []
    if is_out_of_budget(state, ctx):
        return items
    room = ctx.config.budget.rollouts - state.charged
    taken: set[str] = set()
    for test in state.tests.values():
        if is_stale(test, state) or is_ending(test, state, ctx):
            continue
        limit, index = max_pairs(test, ctx), test.next_pair
        quota = WINDOW
        if test.proposal.kind is ProposalKind.ROLLBACK:
            since = state.num_evaluation_pairs - state.watched_pairs
            quota = max(since // ROLLBACK_EVERY - test.next_pair, 0)
        anchor = test.next_anchor
        while index < min(limit, test.prefix + WINDOW) and quota > 0 and len(items) + 2 <= min(num_items, room):
            if not is_tie(test.proposal, ctx, index):
                items += _pair(state, ctx, make, test.proposal, index, taken)
                quota -= 1
            index += 1
            if test.proposal.kind is ProposalKind.PAIR and index % ANCHOR_EVERY == 0 and len(items) + 2 <= room:
                items += _pair(state, ctx, make, test.proposal, -anchor, taken)
                anchor += 1
    return items


class _Used:
    """Tasks used by earlier leases or by this one; a union would copy thousands of names for every pair."""

    def __init__(self, before: set[str], now: set[str]) -> None:
        self._before = before
        self._now = now

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._before or task_id in self._now


def _pair(
    state: State, ctx: Context, make: ItemMaker, proposal: Proposal, index: int, taken: set[str]
) -> list[WorkItem]:
    task = pair_task(_Used(state.used_gate_tasks, taken), proposal, ctx, index)
    taken.add(task.id)
    is_null = proposal.kind is ProposalKind.NULL
    seed = derive_seed("pair-seed", ctx.config.seed, proposal.id, index)
    items = []
    for arm, serving in (("challenger", proposal.challenger), ("incumbent", proposal.incumbent)):
        items.append(
            make.make(
                version=serving.version,
                harness=state.harnesses[serving.harness],
                harness_id=serving.harness,
                task=task,
                answer_format=served_format(state, ctx, proposal, arm, task.family),
                purpose=purpose_of(proposal, index),
                seed=derive_seed(seed, arm) if is_null else seed,
                temperature=1.0 if is_null else 0.0,
                proposal=proposal.id,
                arm=arm,
                pair=index,
            )
        )
    return items
