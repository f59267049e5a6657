"""The population's part of `ask`: assessments on shared tasks, exploit and explore, merges."""

import numpy as np

from coharness.config.merging import merge_rules_of
from coharness.evolution.exploit import Candidate, choose_exploit
from coharness.evolution.operator_choice import Tried, choose_operator
from coharness.evolution.selection.in_run import RUN_RULES, exploit_by_rule
from coharness.harness.compile import serving_format
from coharness.loop.choosing import is_choosing
from coharness.loop.context import FILL_PER_CELL, Context
from coharness.loop.items import ItemMaker
from coharness.loop.ranking import Ranking
from coharness.loop.stage import evolves_harness, is_closing, is_out_of_budget, trains_weights
from coharness.loop.state import CHAMPION, Member, State
from coharness.records import events as ev
from coharness.records.ids import HarnessId, JobId, PolicyId, derive_seed
from coharness.records.policy import VersionRef
from coharness.records.proposals import ProposalKind
from coharness.records.task import Pool
from coharness.records.training import MergeJob
from coharness.records.work import Purpose, WorkItem
from coharness.tasks.draw import draw_task

PERTURBATION = 0.2
"""Size of an explore step, as a share of a hyperparameter's range in its own scale."""


def due_assessment(state: State, ctx: Context, make: ItemMaker) -> ev.Lease | None:
    """Greedy episodes of all members on shared SEARCH tasks, in every distinct serving of the harness population."""
    if state.fill_pending or is_out_of_budget(state, ctx):
        return None
    if is_closing(state, ctx):
        practising = any(i.purpose is Purpose.TRAIN for i in state.running.values())
        if state.final_fill or practising or is_choosing(state, ctx) or any(m.job or m.waiting for m in state.members):
            return None
    elif state.ticks < state.fill_rounds * ctx.config.evolution.assess_every:
        return None
    items: list[WorkItem] = []
    for version, family, harness_id, fmt, arm in _assessed(state, ctx):
        for level in (level for name, level in ctx.space.mix if name == family):
            for index in range(FILL_PER_CELL if state.fill_rounds else ctx.scout_per_cell):
                # One seed for all members: they are compared on the same tasks.
                seed = derive_seed("fill", ctx.config.seed, state.fill_rounds, family, level, index)
                items.append(
                    make.make(
                        version=version,
                        harness=state.harnesses[harness_id],
                        harness_id=harness_id,
                        task=draw_task(ctx.sources, family, level, Pool.SEARCH, seed),
                        answer_format=fmt,
                        purpose=Purpose.FILL,
                        seed=seed,
                        arm=arm,
                    )
                )
    room = ctx.config.budget.rollouts - state.charged
    return ev.Lease(items=tuple(items)) if items and len(items) <= room else None


Assessed = tuple[VersionRef, str, HarnessId, str, str]
"""(version, family, harness, format, arm)"""


def _assessed(state: State, ctx: Context) -> list[Assessed]:
    """Who is assessed in what.

    The first one is of the base alone, before anything has moved: how the champion stands, and, where harnesses evolve, a look
    at every answer format, since what the base can do already costs least to find now. Later ones are of all members in every
    distinct serving of the harness population, and of the champion in its own, all on the same tasks.
    """
    found: dict[tuple[PolicyId, str], Assessed] = {}
    first = state.fill_rounds == 0
    for member in state.members[:1] if first else state.members:
        for slot in state.slots:
            harness = state.harnesses[slot.harness]
            for family in ctx.space.families:
                formats: tuple[str, ...] = (serving_format(harness, ctx.sources, family),)
                if first and evolves_harness(state, ctx):
                    formats = ctx.space.formats[family]
                for fmt in formats:
                    key = (member.policy, ctx.signature(harness, family, fmt))
                    found.setdefault(key, (member.head.ref, family, slot.harness, fmt, ""))
    champion = state.champion
    if champion is not None and not first:
        harness = state.harnesses[champion.harness]
        for family in ctx.space.families:
            fmt = serving_format(harness, ctx.sources, family)
            found[CHAMPION, family] = (champion.version, family, champion.harness, fmt, CHAMPION)
    return list(found.values())


def due_exploit(state: State, ctx: Context, ranking: Ranking) -> ev.Clone | None:
    """The replacement that `evolution.exploit` asks for after an assessment, at most one an assessment."""
    evolution = ctx.config.evolution
    rule = evolution.exploit
    if (
        rule == "none"
        or not trains_weights(state, ctx)
        or is_closing(state, ctx)
        or state.fill_pending
        or state.fill_done_at < 0
        or state.exploited_at == state.fill_done_at
        or state.ticks > state.fill_done_at + ctx.config.evolution.assess_every // 2
    ):
        return None
    lead = ranking.lead
    if lead is None:
        return None
    racing = {t.proposal.manifest["replaces"] for t in state.tests.values() if t.proposal.kind is ProposalKind.MERGE}
    candidates = []
    for member in state.members:
        young = state.ticks - member.born < evolution.newborn_updates * len(state.members)
        candidates.append(
            Candidate(
                policy=member.policy,
                fitness=ranking.fitness(member, lead.harness),
                is_newborn=young and member.born > 0,
                is_busy=member.job is not None or member.policy in racing,
                ancestor=member.ancestor if young else member.policy,
            )
        )
    if rule == "posterior":
        exploit = choose_exploit(candidates, evolution.exploit_probability, evolution.clone_cap)
    else:
        exploit = exploit_by_rule(
            RUN_RULES[rule],
            candidates,
            {m.policy: ranking.fitness(m, lead.harness).cells for m in state.members},
            evolution.clone_cap,
            lambda policy: np.random.default_rng(derive_seed("exploit", ctx.config.seed, state.fill_done_at, policy)),
        )
    if exploit is None:
        return None
    donor = state.member(exploit.donor)
    assert donor is not None
    return ev.Clone(
        child=PolicyId(f"p{state.next_policy}"),
        donor=donor.head.ref,
        replaced=exploit.loser,
        hyperparameters=explore(donor, ctx, state),
        probability=exploit.probability,
    )


def explore(donor: Member, ctx: Context, state: State) -> dict[str, float]:
    """The donor's hyperparameters, each moved by a step that is symmetric in its own scale and reflected at its bounds.

    They stay as they are where `evolution.hyperparameters` says so.
    """
    if ctx.config.evolution.hyperparameters != "explore":
        return dict(donor.hyperparameters)
    rng = np.random.default_rng(derive_seed("explore", ctx.config.seed, state.next_policy))
    values = dict(donor.hyperparameters)
    for name in sorted(ctx.hyperparameters):
        values[name] = float(ctx.hyperparameters[name].perturb(values[name], rng, PERTURBATION))
    return values


def due_merge(state: State, ctx: Context, ranking: Ranking) -> ev.Merge | None:
    """A merge of the two best members that differ, at even spacing."""
    evolution = ctx.config.evolution
    if (
        evolution.merge_every == 0
        or not trains_weights(state, ctx)
        or is_closing(state, ctx)
        or state.merges_ready
        or any(isinstance(j, MergeJob) for j in state.jobs.values())
        or any(t.proposal.kind is ProposalKind.MERGE for t in state.tests.values())
        or state.fill_done_at < 0
        or state.fill_pending
        or state.ticks - state.last_merge < evolution.merge_every
    ):
        return None
    ranked = sorted(state.members, key=lambda m: -ranking.of_policy(m.policy))
    ranked = [m for m in ranked if ranking.of_policy(m.policy) >= 0 and m.head.ref.step > 0]
    if len(ranked) < 2 or len(state.members) < 3:
        return None
    first = ranked[0]
    second = next((m for m in ranked[1:] if m.head.weights.digest != first.head.weights.digest), None)
    if second is None:
        return None
    return ev.Merge(
        job=MergeJob(
            id=JobId(state.next_job),
            child=PolicyId(f"p{state.next_policy}"),
            rule=next_merge_rule(state, ctx),
            parents=(first.head, second.head),
            weights=(0.5, 0.5),
        )
    )


def next_merge_rule(state: State, ctx: Context) -> str:
    """The rule of the next merge: the configured one, or of several that which the races so far speak for."""
    rules = merge_rules_of(ctx.config.evolution.merge_rule)
    counts = {rule: state.operator_counts.get(f"merge.{rule}", [0, 0, 0]) for rule in rules}
    tried = {rule: Tried(accepted=accepted, rejected=rejected) for rule, (_, accepted, rejected) in counts.items()}
    return choose_operator(rules, tried, derive_seed("merge_rule", ctx.config.seed, state.next_policy))
