"""Proposals and verdicts: what evolution suggests, and what the evidence says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coharness.records.ids import ProposalId
from coharness.records.work import Serving


class ProposalKind(StrEnum):
    """What a proposal would change."""

    HARNESS = "harness"
    "An edit of a serving gene, tested against its parent at one pinned policy version."
    PAIR = "pair"
    "A pairing that would become champion, tested against the frozen champion."
    MERGE = "merge"
    "A merge of members, raced against its better parent."
    NULL = "null"
    "The champion against itself: measures how often the gate accepts nothing."
    ROLLBACK = "rollback"
    "The previous champion against the new one, after a promotion."


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A challenger, the incumbent it must beat, and why it was suggested."""

    id: ProposalId
    kind: ProposalKind
    operator: str
    challenger: Serving
    incumbent: Serving
    test_index: int | None = None
    "Its number in the run-level error budget, None where the test spends none."
    families: tuple[str, ...] = ()
    "Families whose prompts the edit changes; elsewhere both arms are the same computation and tie by construction."
    manifest: Mapping[str, Any] = field(default_factory=dict)
    "What it should fix and may break, as JSON values; checked afterwards."


class VerdictKind(StrEnum):
    """What became of a proposal."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    "Its challenger or incumbent ceased to exist, or the run ended, before the test did."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The end of a proposal."""

    proposal: ProposalId
    kind: VerdictKind
    reason: str
    wins: int
    losses: int
    ties: int
    log_evalue: float
    level: float
    "Error level that the e-value was held against, 0 where the test spends none."
