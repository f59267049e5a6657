"""Evidence: decayed Beta counts per policy and cell.

A cell is (serving signature, level): the signature names family, answer format and all else that the episodes depend on, so
pairings that are the same computation share their evidence exactly, and a harness edit that changes nothing in evaluation
keeps it. Observations fade with policy versions: one that is `half_life` versions old counts half.

Invariant: a pure fold; reading changes nothing.
"""

from dataclasses import dataclass, field

from coharness.records.ids import PolicyId
from coharness.stats.beta import BetaEvidence

Cell = tuple[str, int]
"""(serving signature, level)."""


@dataclass(slots=True)
class EvidenceTable:
    """Counts of all policies; owned and mutated by the fold alone."""

    half_life: float
    counts: dict[PolicyId, dict[Cell, tuple[float, float, int]]] = field(default_factory=dict)
    "Policy -> cell -> (successes, failures, version they are decayed to)."

    def observe(self, policy: PolicyId, cell: Cell, step: int, successes: int, failures: int) -> None:
        """Add an observation made at version `step`; older than what is there, it counts less, never more."""
        cells = self.counts.setdefault(policy, {})
        old_s, old_f, at = cells.get(cell, (0.0, 0.0, step))
        newest = max(at, step)
        fade_old, fade_new = self._fade(newest - at), self._fade(newest - step)
        cells[cell] = (old_s * fade_old + successes * fade_new, old_f * fade_old + failures * fade_new, newest)

    def read(self, policy: PolicyId, cell: Cell, step: int) -> BetaEvidence:
        """What is known of a cell as of version `step`."""
        found = self.counts.get(policy, {}).get(cell)
        if found is None:
            return _NOTHING
        successes, failures, at = found
        fade = self._fade(max(step - at, 0))
        return BetaEvidence(successes=successes * fade, failures=failures * fade)

    def inherit(self, child: PolicyId, parent: PolicyId, parent_step: int, discount: float = 1.0) -> None:
        """Give a clone (discount 1) or a merge (below 1) what is known of its parent, as of the child's version 0."""
        cells = self.counts.setdefault(child, {})
        for cell, (successes, failures, at) in self.counts.get(parent, {}).items():
            fade = self._fade(max(parent_step - at, 0)) * discount
            old_s, old_f, _ = cells.get(cell, (0.0, 0.0, 0))
            cells[cell] = (old_s + successes * fade, old_f + failures * fade, 0)

    def forget(self, policy: PolicyId) -> None:
        """Drop a policy that is no longer a member."""
        self.counts.pop(policy, None)

    def _fade(self, versions: int) -> float:
        return 1.0 if versions == 0 else float(0.5 ** (versions / self.half_life))


_NOTHING = BetaEvidence(successes=0.0, failures=0.0)
