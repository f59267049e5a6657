"""Units of work and how they end.

Invariant: every issued WorkItem ends exactly once, as done, failed or cancelled. A work item is one *group*: G episodes
of one task under one pairing; in evaluation G = 1 and decoding is greedy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from coharness.records.errors import Boundary
from coharness.records.harness import Harness
from coharness.records.ids import HarnessId, ItemId, JudgeId, PolicyId, ProposalId
from coharness.records.policy import VersionRef, WeightsRef
from coharness.records.task import TaskRef


class Purpose(StrEnum):
    """Why an item runs; only TRAIN items may reach a trainer."""

    TRAIN = "train"
    "A group whose episodes are trained on."
    GATE = "gate"
    "One arm of one pair of a promotion test, on a GATE task."
    RACE = "race"
    "One arm of one pair of a merge's race, on a GATE task."
    NULL = "null"
    "One arm of the A/A test: the champion against itself at temperature 1."
    ANCHOR = "anchor"
    "One arm of one pair on an ANCHOR task; guards against regression."
    FILL = "fill"
    "Fills an empty evidence cell on shared tasks before an exploit reads it."
    CHOOSE = "choose"
    "Lets the randomized control pick its harness at the end, on GATE tasks."
    TRACK = "track"
    "Feeds the curves; decides nothing and is not charged to the budget."
    SEALED = "sealed"
    "The final report; not charged to the budget."

    @property
    def is_charged(self) -> bool:
        """Whether its episodes count against `budget.rollouts`."""
        return self not in (Purpose.TRACK, Purpose.SEALED)


@dataclass(frozen=True, slots=True, order=True)
class Pairing:
    """The unit of assignment and evidence: one policy lineage in one harness."""

    policy: PolicyId
    harness: HarnessId

    def __str__(self) -> str:
        return f"{self.policy}×{self.harness}"


@dataclass(frozen=True, slots=True, order=True)
class Serving:
    """A pinned pairing: what can be champion, challenger or incumbent."""

    version: VersionRef
    harness: HarnessId

    def __str__(self) -> str:
        return f"{self.version}×{self.harness}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How a judge looks at a training group."""

    judge: JudgeId
    "The version that is asked."
    counts: bool = True
    "Whether its parts enter the reward; where not, the genome's plain weights of the verifier's parts make the score."
    audited: bool = False
    "Whether judge and verifier are held against each other in the outcome; only these feed monitors and repairs."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One group to run."""

    id: ItemId
    version: VersionRef
    harness: HarnessId
    task: TaskRef
    format: str
    "Answer format of this group; in training it may differ from the harness's serving format."
    purpose: Purpose
    seed: int
    group_size: int
    temperature: float
    "0 is greedy."
    max_tokens: int
    "Bound on the tokens written over all turns of one episode."
    proposal: ProposalId | None = None
    arm: str = ""
    "In a paired test: `challenger` or `incumbent`."
    pair: int = 0
    "Index of the pair in its test; negative for pairs on ANCHOR tasks."
    judging: Judging | None = None
    "None where no judge is asked: in evaluation, and in training by a genome whose rule reads none."

    @property
    def pairing(self) -> Pairing:
        """The pairing that this item is evidence for."""
        return Pairing(self.version.policy, self.harness)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBatch:
    """Up to 64 items with all that a stateless worker needs to run them."""

    id: int
    items: tuple[WorkItem, ...]
    harnesses: Mapping[HarnessId, Harness]
    weights: Mapping[VersionRef, WeightsRef]
    lease_s: float
    "Seconds after which the batch is taken from its worker."


class OutcomeStatus(StrEnum):
    """How a work item ended."""

    DONE = "done"
    "All its episodes were generated and scored."
    FAILED = "failed"
    "It crossed a boundary that broke; never a score."
    CANCELLED = "cancelled"
    "It was withdrawn before it ran: its proposal was decided, its member replaced, or the run stopped."


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One attempt that judge and verifier have both looked at."""

    judged: float
    "The judge's score in [0, 1]."
    verified: bool
    features: tuple[float, ...] = ()
    "Surface features of what was written, in the order of `reward.monitors.shortcut.FEATURES`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one work item, summed over its group; bodies are in the replay store under the item's id."""

    item: ItemId
    status: OutcomeStatus
    num_correct: int = 0
    "Episodes whose first final answer the verifier accepts, of `group_size`."
    scores: tuple[float, ...] = ()
    "Training score of each episode [G]."
    num_parsed: int = 0
    "Episodes in which an answer could be read."
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    boundary: Boundary | None = None
    message: str = ""
    audits: tuple[Audit, ...] = ()
    "Of an audited group: its attempts whose answer could be read and that the judge scored."


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What a worker says when it is through with a batch: one outcome an item."""

    batch: int
    worker: str
    outcomes: tuple[Outcome, ...]
    wall_s: float
    cpu_s: float
