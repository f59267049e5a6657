"""Drawing what a training group is about: family, level and answer format, by what it can teach.

That depends on the objective. A policy gradient learns from groups whose episodes differ in their end (Florensa et al. 2018): the
weight of a cell is the posterior probability of that, and a level that the one below has not prepared is as good as closed.
Supervision also learns from the reference of a task that is always failed, if less surely: the weight is the expected variance
p(1-p) and a tenth of the chance of a failure. Families are kept near their gene's share: one that cannot be learned yet would
otherwise take all the room, and what is not rehearsed is forgotten. The serving format is practised most; a share of groups tries
another one, chosen by Thompson sampling (Thompson 1933) over what the formats have shown so far, so that the evidence can name a
better format.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coharness.harness.space import GeneSpace
from coharness.records.harness import Harness
from coharness.stats.beta import BetaEvidence, expected_variance, informative_probability

Read = Callable[[str, str, int], BetaEvidence]
"""(family, answer format, level) -> what is known of the member there."""

OPEN_ABOVE = 0.5
FLOOR_WEIGHT = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one training group is about."""

    family: str
    level: int
    format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a group is expected to teach under one objective, in [0, 1]."""

    is_supervised: bool
    group_size: int

    def of(self, evidence: BetaEvidence) -> float:
        """Worth of a group in an open cell."""
        if self.is_supervised:
            return expected_variance(evidence) + 0.1 * (1.0 - evidence.mean)
        return informative_probability(evidence, self.group_size)

    @property
    def of_closed(self) -> float:
        """Worth of a group at a level that is not open: references teach there too, while hope of a lucky success does not."""
        return 0.05 if self.is_supervised else 0.005


class GroupSampler:
    """Draws groups for one member in one harness; the posteriors are read once, when it is built."""

    def __init__(self, harness: Harness, space: GeneSpace, read: Read, worth: Worth, explores: bool) -> None:
        self._harness = harness
        self._space = space
        self._read = read
        self._worth = worth
        self._explore = harness.sampling.explore_formats if explores else 0.0
        self._weights: dict[tuple[str, str], np.ndarray] = {}
        genes = sorted(harness.tasks, key=lambda g: g.family)
        self._genes = {g.family: g for g in genes}
        self._families = [g.family for g in genes]
        share = np.array([g.weight for g in genes])
        learn = np.array([float(self._levels(f, self._serving(f)).max()) for f in self._families])
        tempered = share * learn**0.25
        mix = harness.sampling.learnability
        self._family_p = (1 - mix) * share / share.sum() + mix * tempered / tempered.sum()

    def draw(self, rng: np.random.Generator) -> Draw:
        """One group."""
        if rng.random() < self._harness.sampling.uniform_floor:
            family = self._families[int(rng.integers(len(self._families)))]
            gene = self._genes[family]
            level = int(rng.integers(gene.level_low, gene.level_high + 1))
            return Draw(family=family, level=level, format=self._serving(family))
        family = self._families[int(rng.choice(len(self._families), p=self._family_p))]
        fmt = self._serving(family)
        if len(self._space.formats[family]) > 1 and rng.random() < self._explore:
            fmt = self._explored(family, rng)
        weights = self._levels(family, fmt)
        level = self._genes[family].level_low + int(rng.choice(len(weights), p=weights / weights.sum()))
        return Draw(family=family, level=level, format=fmt)

    def _serving(self, family: str) -> str:
        return self._harness.prompt.formats.get(family, self._space.formats[family][0])

    def _levels(self, family: str, fmt: str) -> np.ndarray:
        """Unnormalised weights of the family's levels in the gene's range [num levels]."""
        key = (family, fmt)
        if key not in self._weights:
            gene = self._genes[family]
            weights = []
            is_open = True
            for level in range(gene.level_low, gene.level_high + 1):
                evidence = self._read(family, fmt, level)
                weights.append(max(self._worth.of(evidence), FLOOR_WEIGHT) if is_open else self._worth.of_closed)
                is_open = is_open and evidence.mean > OPEN_ABOVE and evidence.effective_n >= 1
            self._weights[key] = np.array(weights)
        return self._weights[key]

    def _explored(self, family: str, rng: np.random.Generator) -> str:
        serving = self._serving(family)
        best, best_value = serving, -1.0
        for fmt in self._space.formats[family]:
            if fmt == serving:
                continue
            value = 0.0
            for level in range(1, self._space.num_levels[family] + 1):
                evidence = self._read(family, fmt, level)
                value += float(rng.beta(evidence.successes + 1, evidence.failures + 1))
            if value > best_value:
                best, best_value = fmt, value
        return best
