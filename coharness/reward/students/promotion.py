"""The test before a student serves: fresh settled samples must show that it is not worse than its teacher by more than a bound.

A student is there to be cheaper, not better, so the burden lies on it: a martingale that bets on "worse by `delta` or more" must
lose by a factor of 1 / level. The level is of the judge's own error budget, which all of its changes share (`training.gate`).
Anchors may veto, as for every change of a judge.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coharness.reward.training.gate import Ledger, Sample, check_samples, count_samples
from coharness.stats.online_fdr import ELond
from coharness.stats.sequential import PairedCounts, less_than_effect_log_evalue, worse_than_log_evalue

VETO = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementVerdict:
    """What became of a student."""

    promoted: bool
    reason: str
    fresh: PairedCounts
    anchors: PairedCounts
    log_evalue: float
    "Evidence that it is not worse by the bound."
    level: float
    ledger: Ledger
    "After the test; all fresh samples are spent."


def decide_replacement(
    ledger: Ledger,
    *,
    fresh: Sequence[Sample],
    anchors: Sequence[Sample],
    trained_on: frozenset[str] = frozenset(),
    delta: float = 0.05,
    budget: ELond | None = None,
) -> ReplacementVerdict:
    """Hold a cascade of student and teacher (the challenger) against the teacher alone (the champion).

    With no sample on which they differ, 110 fresh ones suffice for the first test at a bound of .05, and 90 do not.

    Args:
        ledger: Of this judge, from before.
        fresh: Samples that no test has used and no judge was fitted on.
        anchors: The frozen ones.
        trained_on: Ids that student or threshold were fitted on.
        delta: Loss of accuracy that is allowed.
        budget: Of this judge's changes.

    Raises:
        ConfigError: no fresh sample or no anchor, or one that is spent, trained on, or stands twice.
    """
    check_samples(ledger, fresh, anchors, trained_on)
    level = (budget or ELond()).level(ledger.num_tests + 1, ledger.num_accepted)
    counts, held = count_samples(fresh), count_samples(anchors)
    # "Worse by delta or more" is "the champion is better by delta or more".
    evidence = less_than_effect_log_evalue(counts.losses, counts.wins, counts.ties, delta)
    harm = worse_than_log_evalue(held.wins, held.losses, held.ties, delta)
    vetoed = harm >= math.log(VETO)
    promoted = not vetoed and evidence >= -math.log(level)
    reason = "the anchors show harm" if vetoed else "not worse" if promoted else "not shown to be no worse"
    after = replace(
        ledger,
        num_tests=ledger.num_tests + 1,
        num_accepted=ledger.num_accepted + promoted,
        spent=ledger.spent | {sample.id for sample in fresh},
    )
    return ReplacementVerdict(
        promoted=promoted, reason=reason, fresh=counts, anchors=held, log_evalue=evidence, level=level, ledger=after
    )
