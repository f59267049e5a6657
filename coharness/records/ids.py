"""Names of things: typed ids and content hashes.

Invariant: a thing that is defined by its content (task, harness, weights) is named by a hash of that content, so two
processes that build the same thing agree on its name without talking. A thing that is defined by its place in a run
(policy, work item, proposal) is named by a number the core hands out.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NewType

TaskId = NewType("TaskId", str)
"""Content hash of a task."""
HarnessId = NewType("HarnessId", str)
"""Content hash of a harness genome, `h-` and 12 hex digits."""
PolicyId = NewType("PolicyId", str)
"""Name of one policy lineage in a run, `p0`, `p1`, ...; a clone or merge gets a new one."""
ItemId = NewType("ItemId", int)
"""Number of a work item, unique in a run."""
JobId = NewType("JobId", int)
"""Number of a training or merging job, unique in a run."""
ProposalId = NewType("ProposalId", int)
"""Number of a proposal, unique in a run."""
JudgeId = NewType("JudgeId", str)
"""Content hash of one version of a judge."""
NO_JUDGE = JudgeId("")
"""Where there is none."""

JSON = Any
"""A value that survives a round trip through JSON."""


def canonical_json(value: JSON) -> str:
    """The one spelling of a JSON value that hashes are taken of: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: the value holds NaN or infinity, which have no canonical spelling.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: JSON, length: int = 16) -> str:
    """The first `length` hex digits of the SHA-256 of the canonical spelling of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def hash_unit(*parts: str | int) -> float:
    """A number in [0, 1) that is a pure function of its arguments (pool membership, tie breaks)."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed that is a pure function of its arguments: (run seed, sequence, purpose) in the core."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def freeze(mapping: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """A mapping as a sorted tuple of pairs, so that a frozen record can hold and hash it."""
    return tuple(sorted(mapping.items()))
