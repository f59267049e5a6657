"""Who descends from whom, and how many founders a population really has.

A birth names its parents with the share that each gave: one parent for a clone, several for a merge, none for a member that began
from scratch. Invariants: a child is born after its parents; shares sum to 1 where there are any.

    p0 ──┬── p3 (clone of p0) ──┐
    p1 ──┴──────────────────────┴── p4 (half p3, half p1)      founders of p4 before p3's birth: p0 1/2, p1 1/2
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """How one member came to be."""

    child: str
    parents: tuple[str, ...]
    shares: tuple[float, ...]
    "One a parent, summing to 1."
    time: float
    "Any clock that only goes forward: decisions, updates, work."

    def __post_init__(self) -> None:
        if self.child in self.parents:
            raise ValueError(f"birth of {self.child}: it is its own parent; going on is no birth")
        if len(self.parents) != len(self.shares):
            raise ValueError(
                f"birth of {self.child}: {len(self.parents)} parents and {len(self.shares)} shares; expected one each"
            )
        if self.parents and not math.isclose(math.fsum(self.shares), 1.0, rel_tol=1e-9):
            raise ValueError(
                f"birth of {self.child}: the shares {self.shares} sum to {math.fsum(self.shares)}, expected 1"
            )


def founders(births: Mapping[str, Birth], name: str, since: float) -> dict[str, float]:
    """Share of each ancestor that was alive at time `since`; the member itself where it is as old.

    Args:
        births: all births by child; a member without an entry is a founder.
        name: whose ancestors.
        since: the moment; births at or before it are not looked behind.
    """
    found: dict[str, float] = {}
    stack = [(name, 1.0)]
    while stack:
        member, share = stack.pop()
        birth = births.get(member)
        if birth is None or birth.time <= since or not birth.parents:
            found[member] = found.get(member, 0.0) + share
        else:
            stack += [
                (parent, share * part) for parent, part in zip(birth.parents, birth.shares, strict=True) if part > 0
            ]
    return found


def clan(births: Mapping[str, Birth], name: str, since: float) -> str:
    """The founder with the largest share in a member, the first by name of equals."""
    shares = founders(births, name, since)
    return min(shares, key=lambda founder: (-shares[founder], founder))


def effective_size(births: Mapping[str, Birth], members: Sequence[str], since: float) -> float:
    """Effective population size: 1 / sum of the squared shares that the founders have in the members together.

    N members of N founders have N, N clones of one have 1 (the inverse Simpson index; Simpson, 1949). 0 without members.
    """
    if not members:
        return 0.0
    together: dict[str, float] = {}
    for member in members:
        for founder, share in founders(births, member, since).items():
            together[founder] = together.get(founder, 0.0) + share / len(members)
    return 1.0 / math.fsum(share * share for share in together.values())
