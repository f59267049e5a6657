"""The harness population's part of `ask`: filling slots, level moves, proposals of edits, turnover.

Serving genes change only through the gate. Training genes (levels, weights, sampling) change what is practised, not what is
measured, so they move without a test: levels by hysteresis, the others when a slot is filled anew.
"""

import numpy as np

from coharness.config.schema import Schedule
from coharness.evolution.evidence import Cell
from coharness.harness.compile import changed_families, serving_format
from coharness.harness.curriculum import level_step
from coharness.harness.operators import (
    SERVING_MUTATIONS,
    TRAINING_MUTATIONS,
    crossover,
    set_format,
    shift_levels,
)
from coharness.harness.space import full_range, nth_serving, random_serving
from coharness.loop.context import Context
from coharness.loop.gating import may_propose
from coharness.loop.ranking import Ranking
from coharness.loop.stage import evolves_harness, is_closing
from coharness.loop.state import Member, Slot, State, edit_key
from coharness.records import events as ev
from coharness.records.harness import Harness
from coharness.records.harness_diff import harness_diff
from coharness.records.ids import ProposalId, derive_seed
from coharness.records.proposals import Proposal, ProposalKind
from coharness.records.work import Serving
from coharness.stats.beta import BetaEvidence, probability_mean_greater

LEVELS_EVERY = 3
"""Ticks between two looks at the levels; moves of all families are made at once, as one genome."""
RANDOM_POOL = 256
"""A space of at most so many variants (formats and levels apart, which every group draws anew) is used whole by the randomized
control; of a larger one it draws so many."""
SCOUTED_PROBABILITY = 0.7
"""An evidence-led edit changes the format of every family where another one is better with this posterior probability: on what
the first assessment saw of the base, which nothing has moved yet ..."""
PRACTISED_PROBABILITY = 0.97
"""... and on practice later, when weights and evidence both move: a test of nothing spends from the same error budget."""
MIN_ADVANTAGE = 0.05
REJECTION_TICKS = 120
"""Ticks after which an edit that lost its test may be proposed again."""
MUTATION_TRIES = 4
RANDOM_SHARE = 0.3
"""Chance of a random edit, a typed mutation that ignores the evidence, each time a slot has waited `propose_every` ticks."""


def due_slot(state: State, ctx: Context) -> ev.Spawn | None:
    """A harness for an empty slot at the start; for the randomized control, one more draw from the whole space."""
    index = len(state.slots)
    num_slots = ctx.config.population.num_harnesses if _has_variety(ctx) else 1
    if index < num_slots:
        harness = ctx.h0
        rng = np.random.default_rng(derive_seed("slot", ctx.config.seed, index))
        if index > 0:
            # One slot begins narrow, as the initial harness is, the others with the whole range of levels: which of them suits
            # the base is not known beforehand, and members practise in all slots.
            harness = full_range(harness, ctx.space)
            for mutate in TRAINING_MUTATIONS.values():
                harness = mutate(harness, ctx.space, rng) or harness
        return ev.Spawn(harness=harness, slot=index, operator="start", parents=(ctx.h0.id,) if index else ())
    if ctx.config.schedule is Schedule.RANDOMIZED:
        whole = ctx.space.num_global_variants
        if len(state.pool) < min(RANDOM_POOL, whole):
            harness = full_range(nth_serving(ctx.h0, ctx.space, len(state.pool)), ctx.space)
            if whole > RANDOM_POOL:
                rng = np.random.default_rng(derive_seed("pool", ctx.config.seed, len(state.pool)))
                harness = random_serving(ctx.h0, ctx.space, rng)
            return ev.Spawn(harness=harness, slot=-1, operator="random", parents=(ctx.h0.id,))
    return None


def _has_variety(ctx: Context) -> bool:
    return ctx.config.schedule in (Schedule.ASYNC, Schedule.HARNESS_ONLY, Schedule.STAGEWISE)


def due_levels(state: State, ctx: Context) -> ev.Spawn | None:
    """The next slot whose levels move."""
    if not evolves_harness(state, ctx) or is_closing(state, ctx) or state.ticks - state.last_levels < LEVELS_EVERY:
        return None
    for index, slot in enumerate(state.slots):
        harness = state.harnesses[slot.harness]
        steps = {}
        for gene in harness.tasks:
            family = gene.family
            step = level_step(
                gene,
                [best_evidence(state, ctx, harness, family, fmt, gene.level_high) for fmt in ctx.space.formats[family]],
                harness.sampling,
                slot.practised[family] - slot.moved_at.get(family, 0),
                ctx.space.num_levels[family],
            )
            if step:
                steps[family] = step
        child = shift_levels(harness, steps, ctx.space) if steps else None
        if child is not None:
            return ev.Spawn(harness=child, slot=index, operator="levels", parents=(slot.harness,))
    return None


def best_evidence(
    state: State, ctx: Context, harness: Harness, family: str, answer_format: str, level: int
) -> BetaEvidence:
    """Practice evidence of the member that does best there."""
    cell = (ctx.signature(harness, family, answer_format), level)
    evidence = [state.practice.read(m.policy, cell, m.head.ref.step) for m in state.members]
    return max(evidence, key=lambda e: e.lower(0.1) if e.effective_n else 0.0)


def due_proposal(state: State, ctx: Context, ranking: Ranking) -> ev.Open | None:
    """An edit of the serving genes of the slot that has waited longest, to be tested at one pinned version."""
    if not evolves_harness(state, ctx) or not may_propose(state, ctx) or state.fill_done_at < 0:
        return None
    busy = {t.proposal.manifest["slot"] for t in state.tests.values() if t.proposal.kind is ProposalKind.HARNESS}
    waiting = [
        (slot.last_proposal, index)
        for index, slot in enumerate(state.slots)
        if index not in busy and state.ticks - slot.last_proposal >= ctx.config.evolution.propose_every
    ]
    if not waiting:
        return None
    index = min(waiting)[1]
    slot = state.slots[index]
    parent = state.harnesses[slot.harness]
    member = ranking.best_member(slot.harness)
    rng = np.random.default_rng(derive_seed("propose", ctx.config.seed, state.next_proposal, state.ticks))
    proposed = propose(state, ctx, slot, member, ranking, rng)
    if proposed is None:
        return None
    operator, child = proposed
    families = changed_families(parent, child, ctx.sources)
    if not families:
        return None
    return ev.Open(
        proposal=Proposal(
            id=ProposalId(state.next_proposal),
            kind=ProposalKind.HARNESS,
            operator=operator,
            challenger=Serving(member.head.ref, child.id),
            incumbent=Serving(member.head.ref, slot.harness),
            test_index=state.num_tests + 1,
            families=families,
            manifest={"slot": index, "edits": harness_diff(parent, child), "fixes": list(families)},
        ),
        harness=child,
    )


def propose(
    state: State, ctx: Context, slot: Slot, member: Member, ranking: Ranking, rng: np.random.Generator
) -> tuple[str, Harness] | None:
    """An operator and its child: led by evidence where it names something better, now and then a random edit.

    None where the evidence names nothing and no random edit is due: an idle test costs as much as one that is won.

    An edit that lost its test is not proposed again for a while.
    """
    parent = state.harnesses[slot.harness]
    if rng.random() >= RANDOM_SHARE / ctx.config.evolution.propose_every:
        child = better_formats(state, ctx, parent, member)
        if child is not None and not was_rejected(state, parent, child):
            return "format_by_evidence", child
        other = _better_slot(state, slot, ranking)
        if other is not None:
            child = crossover(parent, state.harnesses[other.harness], ctx.h0, rng)
            if changed_families(parent, child, ctx.sources) and not was_rejected(state, parent, child):
                return "crossover", child
        return None
    for name in rng.permutation(list(SERVING_MUTATIONS)):
        for _ in range(MUTATION_TRIES):
            child = SERVING_MUTATIONS[str(name)](parent, ctx.space, rng)
            if child is not None and not was_rejected(state, parent, child):
                return f"mutate_{name}", child
    return "none", parent


def was_rejected(state: State, parent: Harness, child: Harness) -> bool:
    """Whether this edit of this parent lost its test not long ago; the policy has moved little since."""
    at = state.rejected_edits.get(edit_key(parent, child))
    return at is not None and state.ticks - at < REJECTION_TICKS


def better_formats(state: State, ctx: Context, parent: Harness, member: Member) -> Harness | None:
    """The parent with another format for each family in which the member's practice says that it does better."""
    child = parent
    scouted = state.ticks < ctx.config.evolution.propose_every
    needed = SCOUTED_PROBABILITY if scouted else PRACTISED_PROBABILITY
    for family in ctx.space.families:
        serving = serving_format(parent, ctx.sources, family)
        current = format_value(state, ctx, parent, member, family, serving)
        best, best_mean = serving, _mean(current)
        for fmt in ctx.space.formats[family]:
            if fmt == serving:
                continue
            cells = format_value(state, ctx, parent, member, family, fmt)
            if _mean(cells) > best_mean + MIN_ADVANTAGE and probability_mean_greater(cells, current) >= needed:
                best, best_mean = fmt, _mean(cells)
        if best != serving:
            child = set_format(child, family, best)
    return None if child == parent else child


def format_value(
    state: State, ctx: Context, harness: Harness, member: Member, family: str, answer_format: str
) -> tuple[BetaEvidence, ...]:
    """What practice and assessments say of a format, level by level.

    A level that was never practised is taken to be half as good as the one below, with the weight of two observations: hope
    that fades with distance, so that a format is not preferred for what nobody has seen.
    """
    signature = ctx.signature(harness, family, answer_format)
    cells: list[BetaEvidence] = []
    below = 0.5
    for level in range(1, ctx.space.num_levels[family] + 1):
        evidence = _all_evidence(state, member, (signature, level))
        if evidence.effective_n < 1:
            guess = below / 2
            evidence = BetaEvidence(successes=max(6 * guess - 1, 0.0), failures=max(6 * (1 - guess) - 1, 0.0))
        below = evidence.mean
        cells.append(evidence)
    return tuple(cells)


def _all_evidence(state: State, member: Member, cell: Cell) -> BetaEvidence:
    """Practice and assessments together."""
    step = member.head.ref.step
    practised = state.practice.read(member.policy, cell, step)
    assessed = state.fitness.read(member.policy, cell, step)
    return practised.observed(assessed.successes, assessed.failures)


def _mean(cells: tuple[BetaEvidence, ...]) -> float:
    return sum(c.mean for c in cells) / len(cells)


def _better_slot(state: State, slot: Slot, ranking: Ranking) -> Slot | None:
    mine = ranking.of_slot(state.slots.index(slot))
    others = [(ranking.of_slot(i), i) for i, s in enumerate(state.slots) if s is not slot]
    best = max(others, default=(-1.0, -1))
    return state.slots[best[1]] if best[0] > mine + MIN_ADVANTAGE else None


def due_turnover(state: State, ctx: Context, ranking: Ranking) -> ev.Spawn | None:
    """The weakest slot is filled anew with a crossover of the two best, its training genes mutated."""
    every = ctx.config.evolution.spawn_every
    if (
        every == 0
        or not evolves_harness(state, ctx)
        or is_closing(state, ctx)
        or len(state.slots) < 3
        or state.ticks - state.last_spawn < every
        or state.fill_done_at < 0
    ):
        return None
    busy = {t.proposal.manifest["slot"] for t in state.tests.values() if t.proposal.kind is ProposalKind.HARNESS}
    order = sorted(range(len(state.slots)), key=lambda i: (ranking.of_slot(i), -i))
    weakest = next((i for i in order if i not in busy), None)
    if weakest is None or weakest == order[-1] or ranking.of_slot(weakest) < 0:
        return None
    best, second = state.slots[order[-1]], state.slots[order[-2]]
    rng = np.random.default_rng(derive_seed("spawn", ctx.config.seed, state.ticks))
    child = crossover(state.harnesses[best.harness], state.harnesses[second.harness], ctx.h0, rng)
    # Serving genes reach a slot through the gate or from a slot whose own passed it: the child serves as the best one does.
    champion_genes = state.harnesses[best.harness]
    child = Harness(
        tasks=child.tasks,
        sampling=child.sampling,
        prompt=champion_genes.prompt,
        episode=champion_genes.episode,
        reward=child.reward,
    )
    for mutate in TRAINING_MUTATIONS.values():
        child = mutate(child, ctx.space, rng) or child
    return ev.Spawn(harness=child, slot=weakest, operator="crossover", parents=(best.harness, second.harness))
