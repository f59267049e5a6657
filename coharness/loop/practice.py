"""The training part of `ask`: which groups members practise on, and when they are trained.

Staleness is bounded by admission, before work starts: a member has at most (max_staleness + 1) updates' worth of groups
issued and not yet trained on, groups are trained on oldest first, and a member waits with its next update while a group of it
still runs that the update would leave too far behind. So a group issued at version v is used at v + max_staleness at the latest
(see STALENESS.md beside this file), and nothing that was paid for is thrown away.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from coharness.config.schema import Schedule
from coharness.evolution.pairing import choose_slot
from coharness.harness.sampling import GroupSampler, Worth
from coharness.loop.context import Context
from coharness.loop.items import ItemMaker
from coharness.loop.judging import judging_of, stop_reason
from coharness.loop.stage import evolves_harness, is_closing, trains_weights
from coharness.loop.state import Member, State
from coharness.records import events as ev
from coharness.records.harness import Harness
from coharness.records.ids import ItemId, JobId, PolicyId, derive_seed
from coharness.records.task import Pool
from coharness.records.training import TrainJob
from coharness.records.work import Purpose, WorkItem
from coharness.spaces.training_space import job_hyperparameters
from coharness.stats.beta import BetaEvidence
from coharness.tasks.draw import draw_task

CHUNK = 16
"""Groups drawn with one reading of the evidence, in one harness."""


def outstanding(state: State) -> Counter[PolicyId]:
    """Policy -> training groups issued and not yet trained on or set aside."""
    counts = Counter(i.version.policy for i in state.running.values() if i.purpose is Purpose.TRAIN)
    for job in state.jobs.values():
        if isinstance(job, TrainJob):
            counts[job.policy] += len(job.items)
    for member in state.members:
        counts[member.policy] += len(member.waiting)
    return counts


def lease_practice(state: State, ctx: Context, make: ItemMaker, num_items: int) -> list[WorkItem]:
    """Training groups for the members that have most room, at most `num_items`."""
    if is_closing(state, ctx) or num_items <= 0 or stop_reason(state) is not None:
        return []
    training = ctx.config.training
    limit = (training.max_staleness + 1) * training.groups_per_update
    have = outstanding(state)
    rng = np.random.default_rng(derive_seed("practice", ctx.config.seed, state.num_events))
    room = (ctx.config.budget.rollouts - ctx.tests_reserve - state.charged) // training.group_size
    num_items = min(num_items, max(room, 0))
    items: list[WorkItem] = []
    for member in sorted(state.members, key=lambda m: (have[m.policy], m.policy)):
        wanted = min(limit - have[member.policy], num_items - len(items))
        # A batch is worth its overhead when it is at least half full; a member with less room waits for its next update.
        if wanted < min(training.groups_per_update // 2, limit // 2, num_items):
            continue
        while wanted > 0:
            chunk = _chunk(state, ctx, make, member, min(wanted, CHUNK), rng)
            items += chunk
            wanted -= len(chunk)
        if len(items) >= num_items:
            break
    return items


def _chunk(
    state: State, ctx: Context, make: ItemMaker, member: Member, size: int, rng: np.random.Generator
) -> list[WorkItem]:
    config = ctx.config
    randomized = config.schedule is Schedule.RANDOMIZED
    if randomized:
        harness_id = state.pool[int(rng.integers(len(state.pool)))]
    else:
        counts = [float(slot.by_policy[member.policy]) for slot in state.slots]
        harness_id = state.slots[choose_slot(counts, config.evolution.uniform_pairing, rng)].harness
    harness = state.harnesses[harness_id]
    sampler = None if randomized else _sampler(state, ctx, member, harness)
    items = []
    for _ in range(size):
        if sampler is None:
            harness_id = state.pool[int(rng.integers(len(state.pool)))]
            harness = state.harnesses[harness_id]
            family = ctx.space.families[int(rng.integers(len(ctx.space.families)))]
            level = int(rng.integers(1, ctx.space.num_levels[family] + 1))
            fmt = ctx.space.formats[family][int(rng.integers(len(ctx.space.formats[family])))]
        else:
            draw = sampler.draw(rng)
            family, level, fmt = draw.family, draw.level, draw.format
        items.append(
            make.make(
                version=member.head.ref,
                harness=harness,
                harness_id=harness_id,
                task=draw_task(ctx.sources, family, level, Pool.SEARCH, int(rng.integers(2**62))),
                answer_format=fmt,
                purpose=Purpose.TRAIN,
                group_size=config.training.group_size,
                temperature=member.hyperparameters["temperature"],
                judging=judging_of(state, ctx, harness, make.next_id),
            )
        )
    return items


def _sampler(state: State, ctx: Context, member: Member, harness: Harness) -> GroupSampler:
    signatures: dict[tuple[str, str], str] = {}

    def read(family: str, fmt: str, level: int) -> BetaEvidence:
        key = (family, fmt)
        if key not in signatures:
            signatures[key] = ctx.signature(harness, family, fmt)
        return state.practice.read(member.policy, (signatures[key], level), member.head.ref.step)

    training = ctx.config.training
    supervised = training.is_supervised(training.phase_of(member.updates))
    # A group of one (PPO, KTO) is compared with its like: it teaches where outcomes are uncertain, as a pair does.
    worth = Worth(is_supervised=supervised, group_size=max(training.group_size, 2))
    return GroupSampler(harness, ctx.space, read, worth, evolves_harness(state, ctx))


def due_training(state: State, ctx: Context, num_jobs: int) -> ev.Train | None:
    """The next update: the member that has waited with most groups."""
    if num_jobs <= 0 or not (trains_weights(state, ctx) or any(m.waiting for m in state.members)):
        return None
    size = ctx.config.training.groups_per_update
    abroad: dict[PolicyId, Counter[int]] = {}
    for running in state.running.values():
        if running.purpose is Purpose.TRAIN:
            abroad.setdefault(running.version.policy, Counter())[running.version.step] += 1
    bound = ctx.config.training.max_staleness
    ready = [
        m
        for m in state.members
        if m.job is None
        and len(m.waiting) >= size
        and keeps_bound(m.head.ref.step, [step for _, step in m.waiting], abroad.get(m.policy, {}), size, bound)
    ]
    if not ready and is_closing(state, ctx):
        ready = [m for m in state.members if m.job is None and m.waiting and m.policy not in abroad]
    if not ready:
        return None
    member = max(ready, key=lambda m: (len(m.waiting), m.policy))
    items = tuple(item for item, _ in sorted(member.waiting, key=lambda entry: (entry[1], entry[0]))[:size])
    return ev.Train(
        job=TrainJob(
            id=JobId(state.next_job),
            start=member.head,
            step=member.head.ref.step + 1,
            hyperparameters=job_hyperparameters(ctx.config.training, member.hyperparameters, member.updates),
            items=items,
            borrowed=_borrowed(state, ctx, member, len(items)),
            seed=derive_seed("train", ctx.config.seed, state.next_job),
        )
    )


def keeps_bound(head: int, waiting: Sequence[int], running: Mapping[int, int], size: int, bound: int) -> bool:
    """Whether, after an update on the oldest `size` waiting groups, all others can still be trained on within the bound.

    Of the groups that versions up to v wrote, n are left; oldest first, the last of them is trained on at version
    head + 1 + ceil(n / size) - 1 at the earliest, which must not be later than v + bound.

    Args:
        head: The member's version before the update.
        waiting: Versions that wrote the groups that wait.
        running: Version -> groups of it that are still being written.
        size: Groups of an update.
        bound: Largest staleness.
    """
    left = Counter(running)
    left.update(sorted(waiting)[size:])
    num_left = 0
    for version in sorted(left):
        num_left += left[version]
        if head + -(-num_left // size) - version > bound:
            return False
    return True


def _borrowed(state: State, ctx: Context, member: Member, num_own: int) -> tuple[ItemId, ...]:
    """Recent groups of other members; only supervision may use them, since they were drawn from other policies."""
    training = ctx.config.training
    count = round(training.borrow * num_own)
    if count == 0 or not training.borrows(training.phase_of(member.updates)):
        return ()
    others = [item for item, policy in state.recent if policy != member.policy]
    rng = np.random.default_rng(derive_seed("borrow", ctx.config.seed, state.next_job))
    recent = others[-4 * count :]
    picked = rng.permutation(len(recent))[:count]
    return tuple(recent[int(i)] for i in sorted(picked))


def due_track(state: State, ctx: Context, make: ItemMaker) -> ev.Lease | None:
    """A reading of the curves: the champion and every member's head, greedy, on the fixed TRACK tasks."""
    evaluation = ctx.config.evaluation
    if evaluation.track_tasks == 0 or state.track_pending or state.champion is None:
        return None
    if state.charged < state.track_rounds * evaluation.track_every:
        return None
    pairs = [(state.champion.version, state.champion.harness)]
    pairs += [(m.head.ref, state.slots[i % len(state.slots)].harness) for i, m in enumerate(state.members)]
    items: list[WorkItem] = []
    for version, harness_id in dict.fromkeys(pairs):
        harness = state.harnesses[harness_id]
        for index in range(evaluation.track_tasks):
            family, level = ctx.space.mix[index % len(ctx.space.mix)]
            seed = derive_seed("track", index)
            items.append(
                make.make(
                    version=version,
                    harness=harness,
                    harness_id=harness_id,
                    task=draw_task(ctx.sources, family, level, Pool.TRACK, seed),
                    answer_format=harness.prompt.formats[family],
                    purpose=Purpose.TRACK,
                    seed=seed,
                )
            )
    return ev.Lease(items=tuple(items))
