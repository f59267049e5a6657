"""Posterior exploit: a member gives way to the one that is most surely better, and only where that is sure enough.

The rule of `coharness.evolution.exploit`, asked about one member.
"""

from dataclasses import dataclass

import numpy as np

from coharness.evolution.exploit import Candidate, choose_exploit
from coharness.evolution.selection.contract import Change, Forgetful, Population, clone
from coharness.records.ids import PolicyId


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorExploit(Forgetful):
    """Copy the member that is better with the highest probability, at least `threshold`."""

    threshold: float = 0.9

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """See `Selector.choose`."""
        candidates = [
            Candidate(
                policy=PolicyId(member.name),
                fitness=member.fitness,
                is_newborn=False,
                is_busy=member.name != ready,
                ancestor=PolicyId(member.clan or member.name),
            )
            for member in population.members
        ]
        found = choose_exploit(candidates, self.threshold, clone_cap=1.0)
        if found is None:
            return None
        return clone(
            ready,
            found.donor,
            f"{found.donor} is better with probability {found.probability:.3f}",
            probability=found.probability,
        )
