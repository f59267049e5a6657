"""Directives, which the core asks for, and events, which are all that the journal holds.

State is the fold of events. `ask` answers with directives; each becomes an `Issued` event before it is carried out, so a
run can be folded, resumed and replayed from the journal alone. Time enters only as `Tick`.
"""

from dataclasses import dataclass
from typing import Any

from coharness.records.harness import Harness
from coharness.records.ids import NO_JUDGE, HarnessId, ItemId, JudgeId, PolicyId
from coharness.records.judging import Alarm, Rung
from coharness.records.policy import VersionRef, WeightsRef
from coharness.records.proposals import Proposal, Verdict
from coharness.records.training import Job, JobResult, MergeJob, RepairJob, TrainJob
from coharness.records.work import BatchResult, WorkBatch, WorkItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the fleet could take on at this moment."""

    num_items: int
    "Work items."
    num_jobs: int
    "Training or merging jobs."


# Directives ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Run these items."""

    items: tuple[WorkItem, ...]
    harnesses: tuple[Harness, ...] = ()
    "Genomes of the items that the run has not seen yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """These items are no longer wanted; one that runs already may still end as done."""

    items: tuple[ItemId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Update a member."""

    job: TrainJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Merge members into a new policy."""

    job: MergeJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """Exploit and explore: a member gives way to a copy of a better one with other hyperparameters."""

    child: PolicyId
    donor: VersionRef
    replaced: PolicyId
    hyperparameters: dict[str, float]
    probability: float
    "Posterior probability that the donor is better."


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """A new harness takes a slot of the harness population."""

    harness: Harness
    slot: int
    operator: str
    parents: tuple[HarnessId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Start the test of a proposal."""

    proposal: Proposal
    harness: Harness | None = None
    "The challenger's genome where it is new."


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """End the test of a proposal."""

    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    """The monitors raised an alarm, or were quiet for long: where the response stands from now on."""

    step: int
    "Of the monitors."
    alarm: Alarm | None
    rung: Rung
    judge: JudgeId
    "The version that is asked from now on; another one than before where the judge is rolled back."
    findings: tuple[str, ...] = ()
    "What else the monitors saw; it raises no alarm alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Mend the judge."""

    job: RepairJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Appoint:
    """The end of a repair: the mended judge takes over, or is turned down."""

    judge: JudgeId
    "The candidate."
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """The weights in these folders are needed by nobody any more."""

    uris: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run is over; nothing more will be asked for."""

    reason: str


Command = WorkBatch | Job | Cancel | Retire
"""What a fleet is given: directives with all that a stateless worker needs to carry them out."""

Directive = (
    Lease | Cancel | Train | Merge | Clone | Spawn | Open | Decide | Respond | Repair | Appoint | Retire | Finish
)

# Events -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run began; always the first event."""

    run_id: str
    seed: int
    config: dict[str, Any]
    "The resolved config as JSON values."
    base: WeightsRef
    code_digest: str
    "SHA-256 of the package's sources, so that replay can say whether the code is the same."
    judge: JudgeId = NO_JUDGE
    "The version of the judge that the run begins with, empty where it has none."


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The run goes on under a new epoch; items without an outcome are issued again."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed."""

    elapsed_s: float
    "Seconds of running time since the run began, pauses excluded."
    cpu_s: float
    "CPU seconds of decision code so far."


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`ask` was called with this capacity; the `Issued` events that follow are its answer."""

    capacity: Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A directive of the core, about to be carried out."""

    directive: Directive


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A worker is through with a batch."""

    result: BatchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """A trainer is through with a job."""

    result: JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker died or went silent; its work is leased again by the fleet."""

    worker: str
    reason: str
    num_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A person asked the run to stop: no new work, drain, snapshot."""

    reason: str


Event = Started | Resumed | Tick | Asked | Issued | BatchDone | JobDone | WorkerLost | StopRequested
