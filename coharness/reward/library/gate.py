"""Whether a change of a library is kept: both versions on the same fresh pairs, group by group.

The first skill of an empty library needs an e-value of 1/α against "no better than a coin", α from the ledger's e-LOND budget:
with labels that mean nothing it is hardly ever reached, and then nothing else is tried. Once a library is known to be better
than a coin, an addition needs a gain in likelihood whose one-sided bound is above zero; testing in such a fixed sequence keeps
the error of the whole at that of the first test (Maurer, Hothorn and Lehmacher, 1995). A deletion needs only not to lose.

Invariant: everything is decided from margins and preferences of groups that took no part in making the proposal, or is said to
be decided on seen ones.
"""

import math
from dataclasses import dataclass

import numpy as np

from coharness.reward.library.criterion import Floats
from coharness.reward.library.fit import half_right, log_losses
from coharness.reward.library.table import PairTable
from coharness.stats.interval import Interval
from coharness.stats.online_fdr import ELond
from coharness.stats.paired import paired_t_interval, paired_t_lower_bound
from coharness.stats.sequential import BettingProcess, PairedCounts

MAX_FAILURES = 0.05
"""Share of failed judgments above which no change is decided: what is missing may be what differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A challenger beside the incumbent on the same pairs; integers count pairs, gains are means over groups."""

    counts: PairedCounts
    "Pairs that only the challenger got right (wins), only the incumbent (losses), and the others."
    num_groups: int
    incumbent: float
    "Accuracy, undecided pairs as halves."
    challenger: float
    gain: Interval
    "Of accuracy, mean over groups, 95 %."
    loss_gain: tuple[float, ...]
    "Fall of the log loss of each group [G]."
    log_evalue: float
    "Natural log of the evidence that the gain in accuracy is above 0; valid at any number of groups."
    failures: int = 0
    "Pairs that either version failed to judge; they are in no other figure."

    @property
    def failure_rate(self) -> float:
        """Share of all pairs."""
        total = self.counts.num_pairs + self.failures
        return self.failures / total if total else 0.0


def compare(pairs: PairTable, incumbent: Floats, challenger: Floats) -> Comparison:
    """Hold two versions' margins [P] against the preferences; NaN is a failed judgment.

    Raises:
        ValueError: fewer than two groups are left.
    """
    known = ~(np.isnan(incumbent) | np.isnan(challenger))
    failures = int((~known).sum())
    pairs, incumbent, challenger = pairs.where(known), incumbent[known], challenger[known]
    groups, place = np.unique(pairs.group, return_inverse=True)
    if len(groups) < 2:
        raise ValueError(f"got {len(groups)} groups to compare on, expected 2 or more; give more preferences")
    sizes = np.bincount(place)
    before, after = half_right(incumbent, pairs.target), half_right(challenger, pairs.target)
    gains = np.bincount(place, after - before) / sizes
    loss_gain = np.bincount(place, log_losses(incumbent, pairs.target) - log_losses(challenger, pairs.target)) / sizes
    # The process collects evidence against a mean of at least its bound: fed with falls, against "no gain".
    process = BettingProcess.start(0.0)
    # Beside a coin, which is half right on every pair, a gain is at most a half: bets are on shares of what is possible.
    reach = 0.5 if not incumbent.any() else 1.0
    for gain in gains.tolist():
        process = process.observed(-gain / reach)
    return Comparison(
        counts=PairedCounts(
            wins=int((after > before).sum()), losses=int((after < before).sum()), ties=int((after == before).sum())
        ),
        num_groups=len(groups), incumbent=float(before.mean()), challenger=float(after.mean()),
        gain=paired_t_interval(gains), loss_gain=tuple(loss_gain.tolist()), log_evalue=process.log_evalue, failures=failures,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Tests of the opening so far, and how many were passed."""

    tests: int = 0
    passed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a library was shown to be better than a coin."""
        return self.passed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict with its reason."""

    accept: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """How much evidence a change needs."""

    alpha: float = 0.1
    "False discovery rate of openings."
    level: float = 0.69
    "One-sided confidence that an addition must reach once open; .69 is half a standard error above zero."
    tolerance: float = 0.0
    "Log loss that a deletion may cost."

    def __post_init__(self) -> None:
        if not 0.5 <= self.level < 1.0:
            raise ValueError(f"GateRule.level: got {self.level!r}, expected .5 (any gain) to below 1")

    def open(self, found: Comparison, ledger: Ledger) -> tuple[Decision, Ledger]:
        """Decide on the first skill; a test is counted whatever comes of it."""
        number = ledger.tests + 1
        need = -math.log(ELond(alpha=self.alpha).level(number, ledger.passed))
        refusal = self._refusal(found)
        accept = refusal is None and found.log_evalue >= need
        reason = refusal or f"opening {number}: log e-value {found.log_evalue:.2f}, needed {need:.2f}"
        return Decision(accept=accept, reason=reason), Ledger(tests=number, passed=ledger.passed + accept)

    def add(self, found: Comparison) -> Decision:
        """Decide on a further skill or a changed one."""
        refusal = self._refusal(found)
        if refusal:
            return Decision(accept=False, reason=refusal)
        bound = paired_t_lower_bound(found.loss_gain, self.level)
        return Decision(accept=bound > 0.0, reason=f"{self.level:.0%} bound of the fall in log loss {bound:+.4f}")

    def delete(self, found: Comparison) -> Decision:
        """Decide on a deletion, after which the next one is held against what is left."""
        refusal = self._refusal(found)
        if refusal:
            return Decision(accept=False, reason=refusal)
        mean = sum(found.loss_gain) / len(found.loss_gain)
        return Decision(accept=mean >= -self.tolerance, reason=f"log loss falls by {mean:+.4f} without it")

    @staticmethod
    def _refusal(found: Comparison) -> str | None:
        if found.failure_rate > MAX_FAILURES:
            rate = f"{found.failure_rate:.0%}"
            return f"{found.failures} judgments failed ({rate}), more than {MAX_FAILURES:.0%}; nothing is decided"
        return None
