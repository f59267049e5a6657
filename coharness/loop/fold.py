"""tell: the only place that changes the state. Each event is applied by one function; none of them decides anything.

A decision is made in `ask`, recorded as an `Issued` event, and applied here, so that folding a journal never depends on how
the decision was made.
"""

from dataclasses import replace

from coharness.loop import judging
from coharness.loop.context import Context
from coharness.loop.counting import advance
from coharness.loop.results import batch_done, job_done
from coharness.loop.stage import is_closing
from coharness.loop.state import CHAMPION, Member, OpenTest, Slot, State, edit_key
from coharness.records import events as ev
from coharness.records.harness import Harness
from coharness.records.ids import HarnessId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.proposals import ProposalKind, Verdict, VerdictKind
from coharness.records.training import TrainJob
from coharness.records.work import Purpose, Serving, WorkItem
from coharness.spaces.training_space import initial_hyperparameters


def apply(state: State, ctx: Context, event: ev.Event) -> None:
    """Fold one event into the state."""
    state.num_events += 1
    match event:
        case ev.Tick():
            state.elapsed_s, state.core_cpu_s = event.elapsed_s, event.cpu_s
        case ev.Asked():
            pass
        case ev.Issued():
            _issued(state, ctx, event.directive)
        case ev.BatchDone():
            batch_done(state, ctx, event.result)
        case ev.JobDone():
            job_done(state, event.result)
        case ev.Started():
            _started(state, ctx, event)
        case ev.Resumed():
            state.epoch, state.stop_requested = event.epoch, False
        case ev.StopRequested():
            state.stop_requested = True
        case ev.WorkerLost():
            pass


def _started(state: State, ctx: Context, event: ev.Started) -> None:
    state.run_id, state.seed = event.run_id, event.seed
    state.practice.half_life = state.fitness.half_life = ctx.config.evolution.evidence_half_life
    is_fixed = ctx.config.evolution.hyperparameters == "fixed"
    for index in range(ctx.num_policies):
        policy = PolicyId(f"p{index}")
        head = PolicyVersion(ref=VersionRef(policy, 0), weights=event.base, parents=(), operator="base")
        state.versions[head.ref] = head
        state.members.append(
            Member(
                policy=policy,
                head=head,
                hyperparameters=dict(
                    # The first member's values are the config's own.
                    initial_hyperparameters(
                        ctx.hyperparameters, ctx.config.training, 0 if is_fixed else index, event.seed
                    )
                ),
                born=0,
                ancestor=policy,
            )
        )
    state.next_policy = len(state.members)
    _add_harness(state, ctx.h0)
    judging.begin(state, ctx, event.judge)


# Directives ---------------------------------------------------------------------------------------------------------


def _issued(state: State, ctx: Context, directive: ev.Directive) -> None:
    match directive:
        case ev.Lease():
            if directive.items[0].purpose is Purpose.FILL and is_closing(state, ctx):
                state.final_fill = True
            for harness in directive.harnesses:
                _add_harness(state, harness)
            for item in directive.items:
                _leased(state, item)
        case ev.Cancel():
            pass  # Each cancelled item ends by its own outcome.
        case ev.Train():
            _train(state, directive.job)
        case ev.Merge():
            state.jobs[directive.job.id] = directive.job
            state.next_job += 1
            state.next_policy += 1
            state.last_merge = state.ticks
            state.count_operator(f"merge.{directive.job.rule}", 0)
        case ev.Clone():
            _clone(state, directive)
        case ev.Spawn():
            _spawn(state, ctx, directive)
        case ev.Open():
            _open(state, ctx, directive)
        case ev.Decide():
            _decide(state, directive.verdict)
        case ev.Respond():
            judging.responded(state, directive)
        case ev.Repair():
            judging.repairing(state, directive.job)
        case ev.Appoint():
            judging.appointed(state, directive)
        case ev.Retire():
            gone = set(directive.uris)
            state.versions = {ref: v for ref, v in state.versions.items() if v.weights.uri not in gone}
        case ev.Finish():
            state.finished = directive.reason


def _leased(state: State, item: WorkItem) -> None:
    state.next_item = item.id + 1
    state.issued += 1
    state.running[item.id] = item
    if item.purpose.is_charged:
        state.charged += item.group_size
    if item.proposal is not None:
        test = state.tests[item.proposal]
        test.running += 1
        state.charged_tests += item.group_size
        if item.pair < 0:
            test.next_anchor = max(test.next_anchor, 1 - item.pair)
        else:
            test.next_pair = max(test.next_pair, item.pair + 1)
            state.used_gate_tasks.add(item.task.id)
            if item.arm == "challenger" and test.proposal.kind not in (ProposalKind.ROLLBACK, ProposalKind.NULL):
                state.num_evaluation_pairs += 1
    elif item.purpose is Purpose.FILL:
        if state.fill_pending == 0:
            state.fill_rounds += 1
            state.fill_tally = (0, 0)
        state.fill_pending += 1
    elif item.purpose is Purpose.TRACK:
        if state.track_pending == 0:
            state.track_rounds += 1
        state.track_pending += 1
    elif item.purpose is Purpose.CHOOSE:
        if state.choose_pending == 0:
            state.choose_stage += 1
            state.choose_tally = {}
        state.choose_pending += 1


def _train(state: State, job: TrainJob) -> None:
    member = _member(state, job.policy)
    taken = set(job.items)
    for item, step in member.waiting:
        if item in taken:
            state.staleness_max = max(state.staleness_max, member.head.ref.step - step)
    member.in_job = tuple(entry for entry in member.waiting if entry[0] in taken)
    member.waiting = type(member.waiting)(entry for entry in member.waiting if entry[0] not in taken)
    member.job = job.id
    state.jobs[job.id] = job
    state.next_job += 1


def _clone(state: State, clone: ev.Clone) -> None:
    index = next(i for i, m in enumerate(state.members) if m.policy == clone.replaced)
    loser, donor_version = state.members[index], state.versions[clone.donor]
    donor = state.member(clone.donor.policy)
    child = PolicyVersion(
        ref=VersionRef(clone.child, 0), weights=donor_version.weights, parents=(clone.donor,), operator="clone"
    )
    state.versions[child.ref] = child
    for table in (state.practice, state.fitness):
        table.inherit(clone.child, clone.donor.policy, clone.donor.step)
        table.forget(loser.policy)
    state.filtered += len(loser.waiting)
    state.members[index] = Member(
        policy=clone.child,
        head=child,
        hyperparameters=dict(clone.hyperparameters),
        born=state.ticks,
        ancestor=donor.ancestor if donor else clone.donor.policy,
        parents=(clone.donor,),
        updates=donor.updates if donor else clone.donor.step,
    )
    state.next_policy += 1
    state.exploited_at = state.fill_done_at
    state.count_operator("exploit", 0)
    state.count_operator("exploit", 1)


def _spawn(state: State, ctx: Context, spawn: ev.Spawn) -> None:
    harness_id = _add_harness(state, spawn.harness)
    if spawn.slot < 0:
        state.pool.append(harness_id)
        return
    state.slot_of[harness_id] = spawn.slot
    if spawn.operator == "chosen_genes":
        state.choose_tally = {}
    if spawn.operator == "levels":
        state.last_levels = state.ticks
        slot, old = state.slots[spawn.slot], state.harnesses[state.slots[spawn.slot].harness]
        for gene in spawn.harness.tasks:
            before = old.task_gene(gene.family)
            if before is None or before.level_high != gene.level_high:
                slot.moved_at[gene.family] = slot.practised[gene.family]
        slot.harness = harness_id
        return
    # At the start every slot may propose at once: what the base can be served better costs least to test before it moves.
    waited = -ctx.config.evolution.propose_every if spawn.slot == len(state.slots) else state.ticks
    fresh = Slot(harness=harness_id, born=state.ticks, last_proposal=waited)
    if spawn.slot == len(state.slots):
        state.slots.append(fresh)
    else:
        state.slots[spawn.slot] = fresh
        state.last_spawn = state.ticks
        state.count_operator(f"spawn.{spawn.operator}", 0)
    if state.champion is None:
        _crown(state, Serving(state.members[0].head.ref, harness_id), "start")


def _open(state: State, ctx: Context, directive: ev.Open) -> None:
    proposal = directive.proposal
    if directive.harness is not None:
        _add_harness(state, directive.harness)
    test = OpenTest(proposal=proposal, opened_at=state.charged)
    state.tests[proposal.id] = test
    # Pairs that tie by construction at the very beginning are known without an episode.
    advance(test, ctx)
    state.next_proposal += 1
    if proposal.test_index is not None:
        state.num_tests += 1
    match proposal.kind:
        case ProposalKind.HARNESS:
            state.slots[proposal.manifest["slot"]].last_proposal = state.ticks
        case ProposalKind.PAIR:
            state.last_challenge = state.ticks
            state.final_challenge = state.final_challenge or bool(proposal.manifest.get("final"))
        case ProposalKind.NULL:
            state.num_null += 1
        case ProposalKind.MERGE:
            state.merges_ready = [entry for entry in state.merges_ready if entry[0] != proposal.challenger.version]
        case ProposalKind.ROLLBACK:
            state.watched = len(state.champion_history)
            state.watched_pairs = state.num_evaluation_pairs
    if proposal.kind not in (ProposalKind.MERGE, ProposalKind.NULL):
        state.count_operator(proposal.operator, 0)


def _decide(state: State, verdict: Verdict) -> None:
    test = state.tests.pop(verdict.proposal)
    proposal = test.proposal
    state.verdicts.append(verdict)
    if verdict.kind is not VerdictKind.WITHDRAWN and proposal.kind is not ProposalKind.NULL:
        state.count_operator(proposal.operator, 1 if verdict.kind is VerdictKind.ACCEPTED else 2)
    if verdict.kind is VerdictKind.REJECTED and proposal.kind is ProposalKind.HARNESS:
        parent, child = (state.harnesses[s.harness] for s in (proposal.incumbent, proposal.challenger))
        state.rejected_edits[edit_key(parent, child)] = state.ticks
    if verdict.kind is not VerdictKind.ACCEPTED:
        return
    if proposal.test_index is not None:
        state.num_rejections += 1
    match proposal.kind:
        case ProposalKind.HARNESS:
            slot = state.slots[proposal.manifest["slot"]]
            child = state.harnesses[proposal.challenger.harness]
            # The slot may have moved its levels since the test began; those genes do not change an evaluation.
            rebased = replace(state.harnesses[slot.harness], prompt=child.prompt, episode=child.episode)
            slot.harness = _add_harness(state, rebased)
            state.slot_of[slot.harness] = proposal.manifest["slot"]
        case ProposalKind.PAIR:
            state.previous_champion = state.champion
            _crown(state, proposal.challenger, "promoted")
        case ProposalKind.ROLLBACK:
            state.previous_champion = None
            _crown(state, proposal.challenger, "rolled back")
        case ProposalKind.MERGE:
            _adopt_merge(state, proposal.challenger.version, PolicyId(proposal.manifest["replaces"]))
        case ProposalKind.NULL:
            pass


def _adopt_merge(state: State, child: VersionRef, replaced: PolicyId) -> None:
    index = next((i for i, m in enumerate(state.members) if m.policy == replaced), None)
    if index is None:
        return  # Its place was taken by a clone while it raced.
    loser = state.members[index]
    version = state.versions[child]
    parents = [m for m in state.members if m.policy in {p.policy for p in version.parents}]
    model = parents[0] if parents else loser
    state.filtered += len(loser.waiting)
    for table in (state.practice, state.fitness):
        for parent in version.parents:
            table.inherit(child.policy, parent.policy, parent.step, discount=0.5 / len(version.parents))
    state.members[index] = Member(
        policy=child.policy,
        head=version,
        hyperparameters=dict(model.hyperparameters),
        born=state.ticks,
        ancestor=child.policy,
        parents=version.parents,
        updates=model.updates,
    )
    for table in (state.practice, state.fitness):
        table.forget(loser.policy)


def _crown(state: State, serving: Serving, how: str) -> None:
    state.champion = serving
    state.standing.forget(CHAMPION)
    known = state.fitness.counts.get(serving.version.policy, {})
    state.standing.counts[CHAMPION] = {cell: (s, f, 0) for cell, (s, f, _) in known.items()}
    state.champion_history.append((state.charged, serving, how))


# Shared -------------------------------------------------------------------------------------------------------------


def _member(state: State, policy: PolicyId) -> Member:
    member = state.member(policy)
    assert member is not None, f"no member {policy}"
    return member


def _add_harness(state: State, harness: Harness) -> HarnessId:
    harness_id = harness.id
    state.harnesses.setdefault(harness_id, harness)
    return harness_id
