"""Owns the sequential gate: paired counts, e-values that may be looked at any time, and the rule that reads them.

D is +1, 0 or -1 for one task: the challenger alone solved it, both or neither did, the champion alone did. Pairs are
iid draws from the fixed evaluation mix and are counted in the order they were issued, never in the order they came
back, since slow pairs may differ from fast ones.

Invariants: every function is pure and depends on counts alone, so a replay that has the counts has the verdict. Each
e-value is a nonnegative supermartingale with start 1 under its null, hence P(it ever reaches x) <= 1/x (Ville, 1939).
The loop drives `SequentialRule.decide` with the level of the run's error budget (`online_fdr.ELond`) at each look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import special

from coharness.stats.interval import Interval, check_level

ANCHORS = "anchors"
"""The name under which the anchor tasks stand in a veto."""

# Bets as shares of the largest one that cannot go broke. Best is about shift / variance of D, which is .1 to .3 for a
# shift of .03 to .05 at one discordant pair in five and grows to 1 when one side loses everything.
_BET_SHARES = np.geomspace(0.02, 0.95, 16)  # [16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCounts:
    """How often the challenger alone (win), the champion alone (loss), or both or neither (tie) solved a task.

    Raises ValueError on a negative count. `PairedCounts()` is the zero of `+`.
    """

    wins: int = 0
    losses: int = 0
    ties: int = 0

    def __post_init__(self) -> None:
        for name, count in (("wins", self.wins), ("losses", self.losses), ("ties", self.ties)):
            if count < 0:
                raise ValueError(f"PairedCounts.{name}: got {count!r}, expected 0 or more")

    def __add__(self, other: PairedCounts) -> PairedCounts:
        """Return the counts of both sets of pairs together."""
        return PairedCounts(wins=self.wins + other.wins, losses=self.losses + other.losses, ties=self.ties + other.ties)

    @property
    def num_pairs(self) -> int:
        """Pairs counted, ties included."""
        return self.wins + self.losses + self.ties

    @property
    def mean(self) -> float:
        """Mean of D. Raises ValueError when there is no pair."""
        if self.num_pairs == 0:
            raise ValueError("PairedCounts.mean: got 0 pairs, expected at least one")
        return (self.wins - self.losses) / self.num_pairs

    @property
    def mirrored(self) -> PairedCounts:
        """The same pairs seen from the champion's side; a rollback tests these."""
        return PairedCounts(wins=self.losses, losses=self.wins, ties=self.ties)


def mcnemar_log_evalue(wins: int, losses: int) -> float:
    """Return the natural log of the e-value against "a discordant pair is no likelier a win than a loss".

    E(b, c) = 2^(b+c+1) B(b+1, c+1) (1 - I_1/2(b+1, c+1)), the likelihood ratio against a fair coin averaged over a
    uniform win probability p in (1/2, 1]; ties carry nothing. Valid at any stopping time: for every such p the next
    factor 2p (win) or 2(1-p) (loss) has mean 2(pq + (1-p)(1-q)) <= 1 when the true win probability q <= 1/2, and an
    average of supermartingales is one. Source: Robbins (1970), method of mixtures, for the test of McNemar (1947).

    Finite and monotone for all counts; absolute error of the log about 1e-11 at thousands of pairs. Raises ValueError
    on a negative count.
    """
    if wins < 0 or losses < 0:
        raise ValueError(f"McNemar counts: got wins {wins!r} and losses {losses!r}, expected 0 or more")
    # For whole numbers the beta tail is a binomial one and E = sum over k <= b of b! c! / (k! (b+c+1-k)!): positive
    # terms only, so the log sum neither cancels nor underflows where 1 - I would be 0.
    k = np.arange(wins + 1)
    log_terms = -special.gammaln(k + 1.0) - special.gammaln(wins + losses + 2.0 - k)  # [wins + 1]
    peak = float(log_terms.max())
    log_sum = peak + math.log(float(np.exp(log_terms - peak).sum()))
    return float(special.gammaln(wins + 1.0) + special.gammaln(losses + 1.0)) + log_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class BettingProcess:
    """E-process against "the mean of D, given the past, is at least `bound`" for D in [-1, 1].

    Sixteen gamblers start with capital 1 and bet a fixed lambda each on D falling short of the bound; capital is
    multiplied by 1 - lambda (D - bound), and the e-value is their average. Valid at any stopping time: lambda lies in
    [0, 1 / (1 - bound)), so every factor is positive, and its mean is at most 1 under the null; an average of
    supermartingales is one. Since lambdas never change, the order of the values does not matter. Source: Waudby-Smith
    and Ramdas (2024).

    Miniature: start(0.03) is at E = 1; after ten losses in a row E is about 100, after ten wins about 0.3.
    """

    bound: float
    log_capitals: tuple[float, ...]
    """Natural log of each gambler's capital, in the order of the bets."""

    @classmethod
    def start(cls, bound: float) -> BettingProcess:
        """Return the process before any value. Raises ValueError unless -1 < bound < 1."""
        if not -1.0 < bound < 1.0:
            raise ValueError(f"bound: got {bound!r}, expected a mean difference strictly between -1 and 1")
        return cls(bound=bound, log_capitals=(0.0,) * len(_BET_SHARES))

    def observed(self, value: float, num_times: int = 1) -> BettingProcess:
        """Return the process after `value` in [-1, 1] was seen `num_times` times."""
        if not -1.0 <= value <= 1.0:
            raise ValueError(f"value of D: got {value!r}, expected -1 to 1; divide graded scores by their range")
        if num_times < 0:
            raise ValueError(f"num_times: got {num_times!r}, expected 0 or more")
        bets = _BET_SHARES / (1.0 - self.bound)
        log_capitals = np.asarray(self.log_capitals) + num_times * np.log1p(-bets * (value - self.bound))
        return BettingProcess(bound=self.bound, log_capitals=tuple(log_capitals.tolist()))

    @property
    def log_evalue(self) -> float:
        """Natural log of the average capital."""
        return float(np.logaddexp.reduce(self.log_capitals)) - math.log(len(self.log_capitals))


def _log_evalue_against_at_least(bound: float, counts: PairedCounts) -> float:
    process = BettingProcess.start(bound)
    for value, num_times in ((1.0, counts.wins), (-1.0, counts.losses), (0.0, counts.ties)):
        process = process.observed(value, num_times)
    return process.log_evalue


def less_than_effect_log_evalue(wins: int, losses: int, ties: int, min_effect: float) -> float:
    """Return the natural log of the e-value against "the mean of D is at least `min_effect`" (futility).

    Large means: the true effect is smaller than the least one worth having. Validity and source: `BettingProcess`.
    Raises ValueError on a negative count or unless -1 < min_effect < 1.
    """
    return _log_evalue_against_at_least(min_effect, PairedCounts(wins=wins, losses=losses, ties=ties))


def worse_than_log_evalue(wins: int, losses: int, ties: int, delta: float) -> float:
    """Return the natural log of the e-value against "the mean of D is at least -delta" (harm).

    Large means: the challenger is worse by more than `delta`. Small means nothing, it is no proof of non-inferiority.
    Validity and source: `BettingProcess`. Raises ValueError on a negative count or unless -1 < delta < 1.
    """
    return _log_evalue_against_at_least(-delta, PairedCounts(wins=wins, losses=losses, ties=ties))


def paired_interval(counts: PairedCounts, level: float = 0.95) -> Interval:
    """Return the adjusted Wald interval of the mean of D, after one win and one loss are added.

    Keeps its coverage with few or no discordant pairs, where the plain Wald interval collapses to a point; with no
    pair it is nearly [-1, 1] around 0. Source: Bonett and Price (2012). It describes a fixed number of pairs and is
    not corrected for having stopped at a favourable look. Raises ValueError on a level outside (0, 1).
    """
    check_level(level)
    padded = counts + PairedCounts(wins=1, losses=1)
    centre = padded.mean
    discordant = (padded.wins + padded.losses) / padded.num_pairs
    half = float(special.ndtri(0.5 + level / 2.0)) * math.sqrt((discordant - centre**2) / padded.num_pairs)
    estimate = counts.mean if counts.num_pairs else 0.0
    return Interval.containing(estimate, max(-1.0, centre - half), min(1.0, centre + half), level)


class GateVerdict(StrEnum):
    """What the gate says after a look."""

    ACCEPT = "accept"
    """The challenger is better: the e-value reached 1 / alpha and nothing vetoed."""
    REJECT_FUTILE = "reject_futile"
    """There is evidence that the challenger is not better by the least effect worth having."""
    REJECT_CAP = "reject_cap"
    """The pairs ran out before either side had its evidence: undecided, the champion stays."""
    VETO = "veto"
    """A family or the anchors show evidence that the challenger is worse by more than the tolerated harm."""
    CONTINUE = "continue"
    """Not decided yet, or not a moment at which the rule looks: draw more pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """A verdict with all the evidence it was read from; logs are natural. The evidence is filled at every call."""

    verdict: GateVerdict
    num_pairs: int
    log_evalue: float
    """Evidence that the challenger is better, to be held against `log_threshold`."""
    log_threshold: float
    """log(1 / alpha)."""
    log_futility: float
    """Evidence that the effect is less than the rule's `min_effect`."""
    log_harm: float
    """The strongest evidence of harm among the families and the anchors."""
    most_harmed: str
    """Where `log_harm` was found: a family's name or `ANCHORS`."""
    vetoed_by: str | None
    """`most_harmed` when the verdict is a veto, else None."""
    interval: Interval
    """95 % interval of the mean of D for display, not corrected for stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialRule:
    """When a paired gate stops and how: veto before accept, accept before futility, futility before the cap.

    Accepts a challenger that is no better with chance at most `alpha` whatever the number of looks; rejects as futile
    one with an effect of `min_effect` or more with chance at most 1 / `futility`; each family that is worse by at most
    `harm_delta`, and the anchors, veto with chance at most 1 / `veto`. Raises ValueError on a field out of range.

    Miniature: alpha 0.05 at 96 pairs with 15 wins and 2 losses has E of about 107 >= 20: accept. The same at 100 pairs
    continues to 128, since 100 is no look.
    """

    alpha: float
    """Level of this test, from the run's budget; it may differ from look to look."""
    look_every: int = 32
    max_pairs: int = 1000
    """The cap is a look too. For a finite source, the smaller of the cap and the tasks there are."""
    min_effect: float = 0.03
    futility: float = 10.0
    """E-value at which the test is futile."""
    harm_delta: float = 0.05
    """Loss in the mean of D that is tolerated in a family or on the anchors."""
    veto: float = 10.0
    """E-value at which harm vetoes."""

    def __post_init__(self) -> None:
        expected = {
            "alpha": (0.0 < self.alpha <= 1.0, "a level in (0, 1]"),
            "look_every": (self.look_every >= 1, "1 or more pairs"),
            "max_pairs": (self.max_pairs >= 1, "1 or more pairs"),
            "min_effect": (0.0 <= self.min_effect < 1.0, "a mean difference in [0, 1)"),
            "futility": (1.0 < self.futility < math.inf, "an e-value above 1"),
            "harm_delta": (0.0 <= self.harm_delta < 1.0, "a mean difference in [0, 1)"),
            "veto": (1.0 < self.veto < math.inf, "an e-value above 1"),
        }
        for name, (is_fine, wanted) in expected.items():
            if not is_fine:
                raise ValueError(f"SequentialRule.{name}: got {getattr(self, name)!r}, expected {wanted}")

    def is_look(self, num_pairs: int) -> bool:
        """Return whether the rule may stop at this number of pairs."""
        return num_pairs >= self.max_pairs or (num_pairs > 0 and num_pairs % self.look_every == 0)

    def decide(
        self, counts: PairedCounts, by_family: Mapping[str, PairedCounts], anchors: PairedCounts
    ) -> GateDecision:
        """Return the verdict on the pairs so far.

        `counts` are the pairs drawn from the evaluation mix; `by_family` holds what may veto (families, or groups of
        tasks at risk under their own names); `anchors` the fixed tasks, kept apart from `counts`. The result does not
        depend on the order of the mapping. Raises ValueError when a family is called "anchors".
        """
        if ANCHORS in by_family:
            raise ValueError(f"by_family: got a family named {ANCHORS!r}, which stands for the anchor tasks; rename it")
        log_harm, most_harmed = self._strongest_harm({**by_family, ANCHORS: anchors})
        log_evalue = mcnemar_log_evalue(counts.wins, counts.losses)
        log_futility = less_than_effect_log_evalue(counts.wins, counts.losses, counts.ties, self.min_effect)
        verdict = GateVerdict.CONTINUE
        if self.is_look(counts.num_pairs):
            verdict = self._verdict(counts.num_pairs, log_evalue, log_futility, log_harm)
        return GateDecision(
            verdict=verdict,
            num_pairs=counts.num_pairs,
            log_evalue=log_evalue,
            log_threshold=-math.log(self.alpha),
            log_futility=log_futility,
            log_harm=log_harm,
            most_harmed=most_harmed,
            vetoed_by=most_harmed if verdict is GateVerdict.VETO else None,
            interval=paired_interval(counts),
        )

    def _verdict(self, num_pairs: int, log_evalue: float, log_futility: float, log_harm: float) -> GateVerdict:
        if log_harm >= math.log(self.veto):
            return GateVerdict.VETO
        if log_evalue >= -math.log(self.alpha):
            return GateVerdict.ACCEPT
        if log_futility >= math.log(self.futility):
            return GateVerdict.REJECT_FUTILE
        return GateVerdict.REJECT_CAP if num_pairs >= self.max_pairs else GateVerdict.CONTINUE

    def _strongest_harm(self, groups: Mapping[str, PairedCounts]) -> tuple[float, str]:
        """Return the largest log e-value of harm and its group; of equal ones, the first by name."""
        harms = {
            name: worse_than_log_evalue(group.wins, group.losses, group.ties, self.harm_delta)
            for name, group in sorted(groups.items())
        }
        worst = max(harms, key=lambda name: harms[name])
        return harms[worst], worst
