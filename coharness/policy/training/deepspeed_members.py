"""Members that stay in the memory of a trainer group between their updates, as snapshots of the engine.

Invariant: what is kept depends on nothing but the order of calls and the size that all members share, so that all ranks keep the
same ones: a member that one rank remembered and another did not would leave them in different exchanges.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from coharness.policy.training.deepspeed_state import Snapshot
from coharness.records.ids import PolicyId


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """One member on one rank."""

    engine: Snapshot
    "This rank's part."
    critic: Mapping[str, Tensor]
    "Whole; empty where it has none."


class Snapshots:
    """At most one snapshot of each policy; the least recently used leave first."""

    def __init__(self, max_bytes: int, member_bytes: int) -> None:
        """Make room.

        Args:
            max_bytes: Of all ranks together.
            member_bytes: Weights and optimizer state of one member, whole.
        """
        self._room = max_bytes // max(member_bytes, 1)
        self._kept: OrderedDict[PolicyId, tuple[str, Kept]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, policy: PolicyId, digest: str) -> Kept | None:
        """Take out the policy's snapshot if it is of these weights; one of others is forgotten."""
        held, snapshot = self._kept.pop(policy, ("", None))
        return snapshot if held == digest else None

    def put(self, policy: PolicyId, digest: str, snapshot: Kept) -> None:
        """Keep a snapshot of published weights."""
        self._kept[policy] = (digest, snapshot)
        self._kept.move_to_end(policy)
        while len(self._kept) > self._room:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
