"""Identities of the e-values: their exact mean under the null, and their direction."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coharness.stats.sequential import (
    BettingProcess,
    GateVerdict,
    PairedCounts,
    SequentialRule,
    less_than_effect_log_evalue,
    mcnemar_log_evalue,
    paired_interval,
)

small_counts = st.integers(0, 60)
paired_counts = st.builds(PairedCounts, wins=small_counts, losses=small_counts, ties=small_counts)


def binomial_pmf(num_pairs: int, win_probability: float) -> np.ndarray:
    """Chance of each number of wins [num_pairs + 1]."""
    p, q = win_probability, 1.0 - win_probability
    return np.array([math.comb(num_pairs, k) * p**k * q ** (num_pairs - k) for k in range(num_pairs + 1)])


def mean_betting_evalue(bound: float, mean: float, discordance: float, num_pairs: int) -> float:
    """Exact mean of the e-value after so many iid pairs: the sum over all counts."""
    shares = [(discordance + mean) / 2, (discordance - mean) / 2, 1 - discordance]
    total = 0.0
    for wins in range(num_pairs + 1):
        for losses in range(num_pairs + 1 - wins):
            ties = num_pairs - wins - losses
            chance = stats.multinomial.pmf([wins, losses, ties], num_pairs, shares)
            total += float(chance) * math.exp(less_than_effect_log_evalue(wins, losses, ties, bound))
    return total


@settings(deadline=None)
@given(num_pairs=st.integers(0, 40), win_probability=st.floats(0.0, 0.5))
def test_the_mean_mcnemar_evalue_is_one_at_the_null_and_less_inside_it(num_pairs: int, win_probability: float) -> None:
    evalues = np.exp([mcnemar_log_evalue(wins, num_pairs - wins) for wins in range(num_pairs + 1)])
    assert binomial_pmf(num_pairs, win_probability) @ evalues <= 1.0 + 1e-9
    assert binomial_pmf(num_pairs, 0.5) @ evalues == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(bound=st.floats(-0.3, 0.3), discordance=st.floats(0.35, 1.0), excess=st.floats(0.0, 0.04), num=st.integers(1, 7))
def test_the_mean_betting_evalue_is_one_at_the_bound_and_less_above_it(
    bound: float, discordance: float, excess: float, num: int
) -> None:
    assert mean_betting_evalue(bound, bound, discordance, num) == pytest.approx(1.0)
    assert mean_betting_evalue(bound, bound + excess, discordance, num) <= 1.0 + 1e-9


@settings(deadline=None)
@given(values=st.lists(st.floats(-1.0, 1.0), max_size=20), bound=st.floats(-0.9, 0.9), data=st.data())
def test_the_order_of_values_does_not_matter(values: list[float], bound: float, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(values))
    one = other = BettingProcess.start(bound)
    for first, second in zip(values, shuffled, strict=True):
        one, other = one.observed(first), other.observed(second)
    assert one.log_evalue == pytest.approx(other.log_evalue, abs=1e-9)


@settings(deadline=None)
@given(counts=paired_counts)
def test_one_more_win_is_evidence_for_and_one_more_loss_against(counts: PairedCounts) -> None:
    base = mcnemar_log_evalue(counts.wins, counts.losses)
    assert (
        mcnemar_log_evalue(counts.wins + 1, counts.losses) > base > mcnemar_log_evalue(counts.wins, counts.losses + 1)
    )


@settings(deadline=None)
@given(counts=paired_counts)
def test_futility_rises_with_a_loss_and_falls_with_a_win(counts: PairedCounts) -> None:
    def futility(extra: PairedCounts) -> float:
        total = counts + extra
        return less_than_effect_log_evalue(total.wins, total.losses, total.ties, 0.03)

    assert futility(PairedCounts(losses=1)) > futility(PairedCounts()) > futility(PairedCounts(wins=1))


@settings(deadline=None)
@given(counts=paired_counts)
def test_the_mirror_of_an_interval_is_the_interval_of_the_mirror(counts: PairedCounts) -> None:
    interval, mirror = paired_interval(counts), paired_interval(counts.mirrored)
    assert (-mirror.high, -mirror.value, -mirror.low) == pytest.approx((interval.low, interval.value, interval.high))


@settings(deadline=None)
@given(counts=paired_counts, family=paired_counts, anchors=paired_counts, alpha=st.floats(0.001, 1.0))
def test_a_verdict_always_agrees_with_the_evidence_beside_it(
    counts: PairedCounts, family: PairedCounts, anchors: PairedCounts, alpha: float
) -> None:
    rule = SequentialRule(alpha=alpha, look_every=2, max_pairs=120)
    decision = rule.decide(counts, {"f": family}, anchors)
    harmed = decision.log_harm >= math.log(rule.veto)
    better = decision.log_evalue >= decision.log_threshold
    futile = decision.log_futility >= math.log(rule.futility)
    expected = {
        GateVerdict.VETO: harmed,
        GateVerdict.ACCEPT: better and not harmed,
        GateVerdict.REJECT_FUTILE: futile and not better and not harmed,
        GateVerdict.REJECT_CAP: counts.num_pairs >= 120 and not (harmed or better or futile),
    }
    if rule.is_look(counts.num_pairs) and any(expected.values()):
        assert expected[decision.verdict]
    else:
        assert decision.verdict is GateVerdict.CONTINUE
    assert (decision.vetoed_by is None) == (decision.verdict is not GateVerdict.VETO)
