"""Owns the records of a run's history: who lived when, what was proposed and decided, what was measured and spent.

`coharness.report.history` builds them from a journal; curves, tables, lineage and summary draw them. Invariants: time is
running time in seconds, pauses between two epochs left out; spans of one slot follow each other without overlap, the
last one open (`end is None`) where the run ended with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coharness.records.harness import Harness
from coharness.records.ids import HarnessId, PolicyId, ProposalId
from coharness.records.policy import VersionRef
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.work import Purpose, Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point of a run on its three axes."""

    elapsed_s: float = 0.0
    rollouts: int = 0
    "Charged episodes that were done."
    updates: int = 0
    "Policy versions that had been published by training."


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPoint:
    """One published version of a policy."""

    ref: VersionRef
    at: Moment
    digest: str
    operator: str
    metrics: Mapping[str, float]
    hyperparameters: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLife:
    """One policy lineage from its birth to its end."""

    id: PolicyId
    origin: str
    "base, clone or merge."
    parents: tuple[VersionRef, ...]
    born: Moment
    slot: int | None
    "Its place in the population; a child inherits the place of the member it replaced. None for a merge that lost."
    joined: Moment | None
    "When it took that place; a merge is born earlier, for its race."
    ended: Moment | None
    ending: str
    versions: tuple[VersionPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessSpan:
    """One genome in one slot of the harness population."""

    slot: int
    harness: HarnessId
    start: Moment
    end: Moment | None
    operator: str
    parents: tuple[HarnessId, ...]
    edits: tuple[str, ...]
    "Against its first parent."
    proposal: ProposalId | None
    "The accepted proposal that brought it, None for a spawned one."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalLife:
    """One proposal and what became of it."""

    proposal: Proposal
    opened: Moment
    edits: tuple[str, ...]
    "What its challenger changes, in words."
    verdict: Verdict | None = None
    decided: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionSpan:
    """A pairing while it served."""

    serving: Serving
    start: Moment
    end: Moment | None
    cause: str
    "start, promotion or rollback."
    proposal: ProposalId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Successes of a number of tasks."""

    num_correct: int = 0
    num_tasks: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """Return both together."""
        return Tally(num_correct=self.num_correct + other.num_correct, num_tasks=self.num_tasks + other.num_tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackReading:
    """One reading of the TRACK pool under one pinned pairing."""

    at: Moment
    serving: Serving
    cells: Mapping[tuple[str, int], Tally]
    "(family, level) -> successes."
    num_output_tokens: int

    @property
    def total(self) -> Tally:
        """All cells together."""
        return sum(self.cells.values(), Tally())


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What one purpose cost."""

    num_done: int = 0
    "Work items."
    num_failed: int = 0
    num_cancelled: int = 0
    num_episodes: int = 0
    "Episodes of done items."
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Work that ended in one window."""

    start_s: float
    width_s: float
    "Shorter than the others for the last window."
    num_episodes: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """How far behind the groups of one update were."""

    at: Moment
    policy: PolicyId
    versions_behind: tuple[int, ...]
    "One number an own group [num_groups]."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoad:
    """What one rollout worker did."""

    name: str
    num_batches: int
    num_episodes: int
    num_output_tokens: int
    wall_s: float
    "Seconds inside batches."
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Time in which at least two of {rollout, train, gate} went on; merges count as train, races and anchors as gate."""

    total_s: float
    in_flight_s: float
    "Issued and not ended yet, queued work included."
    running_s: float
    "Inside a worker or trainer, by the wall time that each reports."


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """Failures that crossed one boundary."""

    boundary: str
    num_items: int
    num_jobs: int
    example: str
    "The last message."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoss:
    """A worker that died or went silent."""

    at: Moment
    worker: str
    reason: str
    num_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMove:
    """An alarm about the judge, a change of the response, or the verdict on a mended judge."""

    at: Moment
    what: str
    "`alarm`, `calm`, `mended` or `refused`."
    detail: str
    rung: str = ""
    "Where the response stood behind it."


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A whole run, or as much of it as is in the journal."""

    run_id: str
    seed: int
    config: Mapping[str, Any]
    code_digest: str
    started_at: float
    "Wall time of the first frame, seconds since 1970."
    end: Moment
    finish: str | None
    "Why the core ended the run, None where it has not."
    stop: str | None
    "Why a person stopped it, None where nobody did or it was resumed since."
    num_events: int
    num_epochs: int
    policies: Mapping[PolicyId, PolicyLife]
    genomes: Mapping[HarnessId, Harness]
    harness_spans: tuple[HarnessSpan, ...]
    proposals: tuple[ProposalLife, ...]
    champions: tuple[ChampionSpan, ...]
    track: tuple[TrackReading, ...]
    "Under the champion of the time."
    member_track: tuple[TrackReading, ...]
    "Under the other members, each in a harness of the population."
    spend: Mapping[Purpose, Spend]
    throughput: tuple[Throughput, ...]
    staleness: tuple[Staleness, ...]
    workers: tuple[WorkerLoad, ...]
    overlap: Overlap
    failures: tuple[FailureCount, ...]
    losses: tuple[WorkerLoss, ...]
    rollout_cpu_s: float
    training_cpu_s: float
    decision_cpu_s: float
    num_quarantined: int = 0
    judge_moves: tuple[JudgeMove, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    "What the journal holds that this projection could not place."

    @property
    def champion(self) -> ChampionSpan | None:
        """The pairing that serves now; None before the first harness exists."""
        return self.champions[-1] if self.champions else None

    @property
    def budget_rollouts(self) -> int:
        """Charged episodes that the run may spend."""
        return int(self.config["budget"]["rollouts"])

    def decided(self, *kinds: ProposalKind, verdict: VerdictKind | None = None) -> list[ProposalLife]:
        """Proposals of these kinds (all where none is named) that have a verdict, of one kind where it is named."""
        return [
            life
            for life in self.proposals
            if life.verdict is not None
            and (not kinds or life.proposal.kind in kinds)
            and (verdict is None or life.verdict.kind is verdict)
        ]

    @property
    def null_tests(self) -> Tally:
        """A/A tests that ended by themselves, and how many of them the gate accepted."""
        ended = [
            life.verdict.kind
            for life in self.decided(ProposalKind.NULL)
            if life.verdict is not None and life.verdict.kind is not VerdictKind.WITHDRAWN
        ]
        return Tally(num_correct=ended.count(VerdictKind.ACCEPTED), num_tasks=len(ended))
