"""The state of a run: what the fold of its events holds. Mutated by `coharness.loop.fold` alone.

Identities that hold after every event (checked by `check_identities`, tested as properties):
    issued = running + done + failed + cancelled
    done   = trained + filtered + evaluated + waiting
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from coharness.evolution.evidence import EvidenceTable
from coharness.records.harness import Harness
from coharness.records.ids import NO_JUDGE, HarnessId, ItemId, JobId, JudgeId, PolicyId, ProposalId, content_hash
from coharness.records.judging import Alarm, MendedJudge, Rung
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.proposals import Proposal, Verdict
from coharness.records.training import Job, TrainJob
from coharness.records.work import Serving, WorkItem
from coharness.reward.monitors.response import Response
from coharness.reward.monitors.watch import Watch
from coharness.stats.sequential import PairedCounts


@dataclass(slots=True)
class Member:
    """One policy of the population."""

    policy: PolicyId
    head: PolicyVersion
    hyperparameters: dict[str, float]
    born: int
    "Population ticks at its birth."
    ancestor: PolicyId
    parents: tuple[VersionRef, ...] = ()
    waiting: deque[tuple[ItemId, int]] = field(default_factory=deque)
    "Done training groups, oldest first, with the version that wrote them."
    job: JobId | None = None
    in_job: tuple[tuple[ItemId, int], ...] = ()
    "The groups of the running job, with the versions that wrote them."
    failures: int = 0
    "Jobs in a row that did not end well."
    updates: int = 0
    "Updates that its weights have been through, those of its ancestors included."


@dataclass(slots=True)
class Slot:
    """One place of the harness population."""

    harness: HarnessId
    born: int
    moved_at: dict[str, int] = field(default_factory=dict)
    "Family -> practised groups when its level last moved."
    practised: Counter[str] = field(default_factory=Counter)
    "Family -> groups practised in this slot."
    by_policy: Counter[PolicyId] = field(default_factory=Counter)
    "Policy -> groups practised in this slot."
    last_proposal: int = 0


@dataclass(slots=True)
class OpenTest:
    """A proposal under test: pairs in index order, looked at in whole looks."""

    proposal: Proposal
    opened_at: int
    "Charged episodes when it was opened."
    next_pair: int = 0
    "Index of the next main pair to issue."
    next_anchor: int = 1
    "Anchor pairs have the indices -1, -2, ...; this is the next one."
    half: dict[int, tuple[str, bool]] = field(default_factory=dict)
    "Pair -> (arm, correct) where one arm is back."
    done: dict[int, tuple[str, int]] = field(default_factory=dict)
    "Pair -> (family, difference) where both are, ahead of the prefix."
    void: set[int] = field(default_factory=set)
    "Pairs that lost an arm to a failure; never a score."
    prefix: int = 0
    "Main pairs with an index below this are counted."
    counts: PairedCounts = field(default_factory=lambda: PairedCounts(wins=0, losses=0, ties=0))
    by_family: dict[str, PairedCounts] = field(default_factory=dict)
    anchors: PairedCounts = field(default_factory=lambda: PairedCounts(wins=0, losses=0, ties=0))
    look: tuple[PairedCounts, dict[str, PairedCounts], PairedCounts] | None = None
    "Counts at the last whole look."
    running: int = 0


@dataclass(slots=True)
class Milestone:
    """The champion at a fixed share of the budget; the sealed report reads its curve."""

    rollouts: int
    tokens: int
    cpu_s: float
    serving: Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTerm:
    """A stretch of the run under one version of the judge."""

    judge: JudgeId
    since: int
    "Charged episodes when it began."
    how: str
    "`start`, `mended` or `rolled back`."
    heads: tuple[VersionRef, ...] = ()
    "The members' weights at that moment; they are kept for whoever looks into it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An alarm of the monitors."""

    alarm: Alarm
    charged: int
    "Charged episodes when it was raised."
    judge: JudgeId
    rung: Rung
    "Where the response stood behind it."
    heads: tuple[VersionRef, ...] = ()
    "The members' weights then, kept at the first alarm about each judge."


@dataclass(slots=True)
class State:
    """Everything the core knows."""

    run_id: str = ""
    seed: int = 0
    num_events: int = 0
    epoch: int = 1
    elapsed_s: float = 0.0
    core_cpu_s: float = 0.0
    work_cpu_s: float = 0.0
    stop_requested: bool = False
    finished: str = ""
    "Why the run ended; empty while it goes on."

    # Counters of names and of work.
    next_item: int = 0
    next_job: int = 0
    next_policy: int = 0
    next_proposal: int = 0
    issued: int = 0
    done: int = 0
    failed: int = 0
    failed_streak: int = 0
    "Items that failed since the last one that was done."
    last_failure: str = ""
    cancelled: int = 0
    trained: int = 0
    filtered: int = 0
    evaluated: int = 0
    charged: int = 0
    "Episodes counted against the budget: issued, less those that were cancelled or failed before they ran."
    charged_tests: int = 0
    tokens: int = 0
    "Tokens of charged episodes, prompts included."
    episodes: Counter[str] = field(default_factory=Counter)
    "Purpose -> episodes that ended as done."
    practised: int = 0
    "Training groups that are done."
    ticks: int = 0
    "The population's clock: updates, or as many groups where nothing is trained."
    staleness_max: int = 0
    "Most versions that a group was behind when it was trained on."

    running: dict[ItemId, WorkItem] = field(default_factory=dict)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    harnesses: dict[HarnessId, Harness] = field(default_factory=dict)
    slot_of: dict[HarnessId, int] = field(default_factory=dict)
    "The slot that a harness stands or last stood in."
    pool: list[HarnessId] = field(default_factory=list)
    "Harnesses of the randomized control, drawn from the whole space."
    versions: dict[VersionRef, PolicyVersion] = field(default_factory=dict)
    recent: deque[tuple[ItemId, PolicyId]] = field(default_factory=lambda: deque(maxlen=4096))
    "Done training groups, for other members to borrow."

    practice: EvidenceTable = field(default_factory=lambda: EvidenceTable(4.0))
    "From training groups, sampled at the member's temperature: steers what is practised."
    fitness: EvidenceTable = field(default_factory=lambda: EvidenceTable(4.0))
    "From greedy episodes on shared tasks: decides who is better."

    standing: EvidenceTable = field(default_factory=lambda: EvidenceTable(1.0))
    "What assessments say of the champion's frozen version, under the name `CHAMPION`; it does not fade, since it does not move."

    champion: Serving | None = None
    previous_champion: Serving | None = None
    champion_history: list[tuple[int, Serving, str]] = field(default_factory=list)
    tests: dict[ProposalId, OpenTest] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    num_tests: int = 0
    "Tests that were given a number in the error budget."
    num_rejections: int = 0
    "Of those, how many rejected the null, i.e. accepted a challenger."
    used_gate_tasks: set[str] = field(default_factory=set)
    num_null: int = 0
    watched_pairs: int = 0
    "Evaluation pairs issued when that watch was opened."
    watched: int = 0
    "Length of the champion's history when the last rollback watch was opened."
    num_evaluation_pairs: int = 0
    "Main pairs issued; every eighth one after a promotion goes to the rollback watch."

    fill_rounds: int = 0
    fill_pending: int = 0
    fill_done_at: int = -1
    "Ticks when the last assessment was complete."
    exploited_at: int = -1
    "Ticks of the assessment that the last exploit used up."
    last_merge: int = 0
    last_challenge: int = 0
    last_spawn: int = 0
    last_levels: int = 0
    final_challenge: bool = False
    final_fill: bool = False
    track_rounds: int = 0
    track_pending: int = 0
    track_running: dict[Serving, tuple[int, int]] = field(default_factory=dict)
    "Serving -> (correct, tried) of the reading that is under way."
    track: dict[Serving, tuple[int, int]] = field(default_factory=dict)
    "The same of the last whole reading."
    milestones: list[Milestone] = field(default_factory=list)
    choose_stage: int = 0
    choose_pending: int = 0
    choose_tally: dict[str, tuple[int, int]] = field(default_factory=dict)
    "Option -> (correct, tried)."
    rejected_edits: dict[str, int] = field(default_factory=dict)
    "Edit of serving genes (see `edit_key`) -> ticks when it last lost its test."
    operator_counts: dict[str, list[int]] = field(default_factory=dict)
    "Operator -> [proposed, accepted, rejected]."
    merges_ready: list[tuple[VersionRef, tuple[VersionRef, ...]]] = field(default_factory=list)
    "Merged policies that wait for their race."
    merge_rules: dict[PolicyId, str] = field(default_factory=dict)
    "Merged policy -> the rule that made it."

    judge: JudgeId = NO_JUDGE
    "The version that new groups are judged by, empty where the run has no judge."
    terms: list[JudgeTerm] = field(default_factory=list)
    watch: Watch | None = None
    response: Response = field(default_factory=Response)
    responded_at: int = 0
    "Step of the monitors that was responded to last."
    incidents: list[Incident] = field(default_factory=list)
    audited: deque[ItemId] = field(default_factory=lambda: deque(maxlen=4096))
    "Done audited groups that the present judge scored."
    new_conflicts: int = 0
    "Of those, groups with a conflict since its last repair."
    refused_in_term: int = 0
    "Candidates for its place that were turned down."
    repair_due: bool = False
    mended: MendedJudge | None = None
    "A candidate that waits for its verdict."
    refused_judges: list[tuple[JudgeId, str]] = field(default_factory=list)
    fill_tally: tuple[int, int] = (0, 0)
    "(correct, tried) of the members in the assessment that is under way."

    def member(self, policy: PolicyId) -> Member | None:
        """The member of this name, None where it is gone."""
        return next((m for m in self.members if m.policy == policy), None)

    def count_operator(self, operator: str, index: int) -> None:
        """Count an operator as proposed (index 0), accepted (1) or rejected (2)."""
        self.operator_counts.setdefault(operator, [0, 0, 0])[index] += 1

    @property
    def cpu_s(self) -> float:
        """CPU seconds of rollout, training and decision code."""
        return self.core_cpu_s + self.work_cpu_s

    def check_identities(self) -> None:
        """Raise AssertionError where an accounting identity is broken: a bug of ours, never of a user."""
        running, waiting = len(self.running), sum(len(m.waiting) for m in self.members)
        in_jobs = sum(len(j.items) for j in self.jobs.values() if isinstance(j, TrainJob))
        assert self.issued == running + self.done + self.failed + self.cancelled, (
            f"issued {self.issued} != running {running} + done {self.done} + failed {self.failed} + "
            f"cancelled {self.cancelled}"
        )
        assert self.done == self.trained + self.filtered + self.evaluated + waiting + in_jobs, (
            f"done {self.done} != trained {self.trained} + filtered {self.filtered} + evaluated {self.evaluated} + "
            f"waiting {waiting} (in jobs {in_jobs})"
        )


CHAMPION = PolicyId("champion")


def edit_key(parent: Harness, child: Harness) -> str:
    """Names an edit of serving genes, whatever the training genes are."""
    genes = (parent.to_json(), child.to_json())
    return content_hash([[g["prompt"], g["episode"]] for g in genes])


def state_digest(state: State) -> str:
    """A hash of the state; two folds of the same events agree on it.

    CPU seconds of the core are left out: a replay spends its own.
    """
    data = {
        "counts": [
            state.num_events, state.next_item, state.next_job, state.next_policy, state.next_proposal, state.issued,
            state.done, state.failed, state.cancelled, state.trained, state.filtered, state.evaluated, state.charged,
            state.tokens, state.ticks, state.num_tests, state.num_rejections, state.fill_rounds, state.track_rounds,
        ],
        "running": sorted(state.running),
        "jobs": sorted(state.jobs),
        "members": [
            [m.policy, str(m.head.ref), m.head.weights.digest, sorted(m.hyperparameters.items()), list(m.waiting)]
            for m in state.members
        ],
        "slots": [[s.harness, s.born, sorted(s.practised.items())] for s in state.slots],
        "harnesses": sorted(state.harnesses),
        "versions": sorted(map(str, state.versions)),
        "champion": str(state.champion),
        "tests": [[t.proposal.id, t.prefix, t.counts.wins, t.counts.losses, t.counts.ties] for t in state.tests.values()],
        "verdicts": [[v.proposal, v.kind, v.wins, v.losses, v.ties] for v in state.verdicts],
        "practice": _table_json(state.practice),
        "fitness": _table_json(state.fitness),
        "judge": [
            state.judge, state.response.rung, state.response.since, state.watch.step if state.watch else 0,
            repr(state.watch.conflict.log_statistics) if state.watch and state.watch.conflict else "",
            len(state.incidents), list(state.audited), state.new_conflicts, [r[0] for r in state.refused_judges],
        ],
        "finished": state.finished,
    }  # fmt: skip
    return content_hash(data, 32)


def _table_json(table: EvidenceTable) -> list[Any]:
    return [
        [policy, [[sig, level, repr(s), repr(f), at] for (sig, level), (s, f, at) in sorted(cells.items())]]
        for policy, cells in sorted(table.counts.items())
    ]
