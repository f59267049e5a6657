"""Level moves with hysteresis: when a harness's upper level for a family moves by one.

Up where success at the upper level is surely above one bound, down where it is surely below a lower one, and never twice
within `min_groups`: a band and a dwell, so that noise does not make levels flutter (a move makes a new genome, and each
flutter would cost evidence).
"""

from collections.abc import Sequence

from coharness.records.harness import SamplingGenes, TaskGene
from coharness.stats.beta import BetaEvidence

CONFIDENCE = 0.9
MIN_OBSERVATIONS = 4
"""Effective observations below which a format's success at the top says nothing."""


def level_step(
    gene: TaskGene, at_top: Sequence[BetaEvidence], genes: SamplingGenes, num_groups: float, max_level: int
) -> int:
    """-1, 0 or +1.

    Args:
        gene: the family's gene.
        at_top: evidence at the gene's upper level, one entry for each answer format; the best one speaks for the family.
        genes: the band and the dwell.
        num_groups: groups of the family since its last move.
        max_level: the family's hardest level.
    """
    if num_groups < genes.min_groups or not at_top:
        return 0
    known = [e for e in at_top if e.effective_n >= MIN_OBSERVATIONS]
    if not known:
        return 0
    best = max(known, key=lambda e: e.mean)
    if gene.level_high < max_level and best.lower(1 - CONFIDENCE) > genes.level_up:
        return 1
    if gene.level_high > gene.level_low and best.lower(CONFIDENCE) < genes.level_down:
        return -1
    return 0
