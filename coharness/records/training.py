"""Jobs of a trainer and how they end: updates of a member's weights, merges of several, repairs of the judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from coharness.records.errors import Boundary
from coharness.records.ids import ItemId, JobId, JudgeId, PolicyId
from coharness.records.judging import MendedJudge
from coharness.records.policy import Hyperparameters, PolicyVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """One update of one member: load `start`, train on the groups, publish version `step`."""

    id: JobId
    start: PolicyVersion
    step: int
    hyperparameters: Hyperparameters
    items: tuple[ItemId, ...]
    "The member's own groups, each used by exactly one update."
    borrowed: tuple[ItemId, ...]
    "Groups of other members; supervised objectives alone may use them."
    seed: int

    @property
    def policy(self) -> PolicyId:
        """The member that is trained."""
        return self.start.ref.policy


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJob:
    """Merge parents into version 0 of a new policy."""

    id: JobId
    child: PolicyId
    rule: str
    parents: tuple[PolicyVersion, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairJob:
    """Fit a new version of the run's judge to audited groups, and measure it beside the present one."""

    id: JobId
    judge: JudgeId
    "The present one, which scored the groups."
    items: tuple[ItemId, ...]
    "Audited groups that it scored, the oldest first."
    seed: int


Job = TrainJob | MergeJob | RepairJob
"""What a trainer is given."""


class JobStatus(StrEnum):
    """How a job ended."""

    DONE = "done"
    "A new version was published."
    FAILED = "failed"
    "A boundary broke; the member keeps its last version and its groups may be used again."
    QUARANTINED = "quarantined"
    "The update was non-finite; nothing was published and the groups are set aside."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The end of one job."""

    job: JobId
    status: JobStatus
    version: PolicyVersion | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    "Named `area/thing`."
    num_rows: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    boundary: Boundary | None = None
    message: str = ""
    mended: MendedJudge | None = None
    "Of a repair alone."
