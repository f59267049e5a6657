"""The part of the fold that applies results: the ends of work items and of jobs."""

from coharness.harness.compile import serving_signature
from coharness.loop import judging
from coharness.loop.context import Context
from coharness.loop.counting import arm_ended
from coharness.loop.stage import trains_weights
from coharness.loop.state import CHAMPION, Milestone, State
from coharness.records.training import JobResult, JobStatus, MergeJob, RepairJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, Purpose, Serving, WorkItem

NUM_MILESTONES = 8
MAX_JOB_FAILURES = 3
"""Jobs of one member that may fail in a row before its groups are set aside."""


def batch_done(state: State, ctx: Context, result: BatchResult) -> None:
    """Apply the outcomes of a batch."""
    state.work_cpu_s += result.cpu_s
    for outcome in result.outcomes:
        item = state.running.pop(outcome.item)
        match outcome.status:
            case OutcomeStatus.DONE:
                state.done += 1
                state.failed_streak = 0
                state.episodes[item.purpose] += item.group_size
                if item.purpose.is_charged:
                    state.tokens += outcome.num_prompt_tokens + outcome.num_output_tokens
            case OutcomeStatus.FAILED:
                state.failed += 1
                state.failed_streak += 1
                state.last_failure = f"{outcome.boundary}: {outcome.message}"
            case OutcomeStatus.CANCELLED:
                state.cancelled += 1
        if outcome.status is not OutcomeStatus.DONE and item.purpose.is_charged:
            state.charged -= item.group_size
        _ended(state, ctx, item, outcome)
    _mark_milestones(state, ctx)


def _ended(state: State, ctx: Context, item: WorkItem, outcome: Outcome) -> None:
    is_done = outcome.status is OutcomeStatus.DONE
    if item.purpose is Purpose.TRAIN:
        if is_done:
            _practised(state, ctx, item, outcome)
        return
    state.evaluated += is_done
    if item.proposal is not None:
        if not is_done:
            state.charged_tests -= item.group_size
        test = state.tests.get(item.proposal)
        if test is not None:
            arm_ended(test, ctx, item, outcome.num_correct > 0, is_done)
    elif item.purpose is Purpose.FILL:
        if is_done:
            _observe(state, ctx, item, outcome)
            if item.arm != CHAMPION:
                correct, tried = state.fill_tally
                state.fill_tally = (correct + outcome.num_correct, tried + item.group_size)
        state.fill_pending -= 1
        if state.fill_pending == 0:
            if state.fill_rounds > 1:
                # The first assessment is of the base alone, in other formats too; it says nothing of how members move.
                judging.assessed(state, *state.fill_tally)
            state.fill_done_at = state.ticks
            if state.fill_rounds == 1:
                # The first assessment was of the base, where all members began.
                for member in state.members[1:]:
                    state.fitness.inherit(member.policy, state.members[0].policy, 0)
                known = state.fitness.counts.get(state.members[0].policy, {})
                state.standing.counts[CHAMPION] = dict(known)
    elif item.purpose is Purpose.TRACK:
        state.track_pending -= 1
        if is_done:
            serving = Serving(item.version, item.harness)
            correct, tried = state.track_running.get(serving, (0, 0))
            state.track_running[serving] = (correct + outcome.num_correct, tried + item.group_size)
        if state.track_pending == 0:
            state.track, state.track_running = state.track_running, {}
    elif item.purpose is Purpose.CHOOSE:
        state.choose_pending -= 1
        if is_done:
            correct, tried = state.choose_tally.get(item.arm, (0, 0))
            state.choose_tally[item.arm] = (correct + outcome.num_correct, tried + item.group_size)


def _signature(state: State, item: WorkItem) -> str:
    return serving_signature(state.harnesses[item.harness], item.task.family, item.format)


def _observe(state: State, ctx: Context, item: WorkItem, outcome: Outcome) -> None:
    if item.arm == CHAMPION:
        cell = (_signature(state, item), item.task.level)
        state.standing.observe(CHAMPION, cell, 0, outcome.num_correct, item.group_size - outcome.num_correct)
        return
    if state.member(item.version.policy) is None:
        return
    table = state.practice if item.purpose is Purpose.TRAIN else state.fitness
    cell = (_signature(state, item), item.task.level)
    table.observe(
        item.version.policy, cell, item.version.step, outcome.num_correct, item.group_size - outcome.num_correct
    )


def _practised(state: State, ctx: Context, item: WorkItem, outcome: Outcome) -> None:
    _observe(state, ctx, item, outcome)
    judging.audited(state, item, outcome)
    state.practised += 1
    index = state.slot_of.get(item.harness)
    if index is not None and index < len(state.slots):
        slot = state.slots[index]
        slot.practised[item.task.family] += 1
        slot.by_policy[item.version.policy] += 1
    member = state.member(item.version.policy)
    if member is None or not trains_weights(state, ctx):
        state.filtered += 1
        if member is not None and state.practised % ctx.config.training.groups_per_update == 0:
            state.ticks += 1
        return
    member.waiting.append((item.id, item.version.step))
    state.recent.append((item.id, item.version.policy))


def job_done(state: State, result: JobResult) -> None:
    """Apply the end of an update, a merge or a repair."""
    job = state.jobs.pop(result.job)
    state.work_cpu_s += result.cpu_s
    version = result.version
    if isinstance(job, RepairJob):
        judging.repaired(state, result)
        return
    if version is not None:
        state.versions[version.ref] = version
    if isinstance(job, MergeJob):
        if version is not None:
            state.merges_ready.append((version.ref, tuple(p.ref for p in job.parents)))
            state.merge_rules[job.child] = job.rule
        else:
            state.count_operator(f"merge.{job.rule}", 2)
        return
    member = state.member(job.policy)
    if version is not None:
        state.trained += len(job.items)
        state.ticks += 1
    elif result.status is JobStatus.QUARANTINED or member is None or member.failures + 1 >= MAX_JOB_FAILURES:
        state.filtered += len(job.items)
    else:
        # Back to the front of the queue with their true age, so that the bound on staleness still holds.
        member.waiting.extendleft(reversed(member.in_job))
    if member is None:
        return
    member.job, member.in_job = None, ()
    if version is not None:
        member.head, member.failures = version, 0
        member.updates += 1
    else:
        member.failures += 1
        if result.status is JobStatus.QUARANTINED:
            # A non-finite update: the same step would fail again, a smaller one may not.
            member.hyperparameters["learning_rate"] /= 2


def _mark_milestones(state: State, ctx: Context) -> None:
    if state.champion is None:
        return
    spent = sum(n for purpose, n in state.episodes.items() if Purpose(purpose).is_charged)
    while (
        len(state.milestones) < NUM_MILESTONES
        and spent >= (len(state.milestones) + 1) * ctx.config.budget.rollouts / NUM_MILESTONES
    ):
        state.milestones.append(
            Milestone(rollouts=spent, tokens=state.tokens, cpu_s=state.cpu_s, serving=state.champion)
        )
