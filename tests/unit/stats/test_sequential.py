"""The gate: e-values against independent oracles and by simulation, the rule's order of verdicts, what it refuses."""

import math
import pickle

import numpy as np
import pytest
from scipy import integrate, stats

from coharness.stats.sequential import (
    ANCHORS,
    BettingProcess,
    GateVerdict,
    PairedCounts,
    SequentialRule,
    less_than_effect_log_evalue,
    mcnemar_log_evalue,
    paired_interval,
    worse_than_log_evalue,
)

NUM_STREAMS = 4000
CAP = 400


def counts(wins: int = 0, losses: int = 0, ties: int = 0) -> PairedCounts:
    return PairedCounts(wins=wins, losses=losses, ties=ties)


def rule(alpha: float = 0.05, **changes: float) -> SequentialRule:
    return SequentialRule(alpha=alpha, **changes)  # type: ignore[arg-type]


def cumulative_counts(delta: float, discordance: float, seed: int, look_every: int = 1, cap: int = CAP) -> np.ndarray:
    """Wins, losses and ties [streams, looks, 3] of simulated gates whose D has mean `delta`."""
    shares = [(discordance + delta) / 2, (discordance - delta) / 2, 1 - discordance]
    blocks = np.full(-(-cap // look_every), look_every)
    blocks[-1] -= blocks.sum() - cap
    draws = np.random.default_rng(seed).multinomial(blocks, shares, size=(NUM_STREAMS, len(blocks)))
    return draws.cumsum(axis=1)


def mcnemar_at(streams: np.ndarray) -> np.ndarray:
    """Log e-values [streams, looks] through the function under test, once for each distinct pair of counts."""
    keys, inverse = np.unique(streams[..., 0] * 10_000 + streams[..., 1], return_inverse=True)
    values = np.array([mcnemar_log_evalue(*divmod(int(key), 10_000)) for key in keys])
    return values[inverse].reshape(streams.shape[:2])


def accept_rate(delta: float, seed: int, look_every: int = 1) -> float:
    streams = cumulative_counts(delta, discordance=0.2, seed=seed, look_every=look_every)
    return float((mcnemar_at(streams) >= math.log(20)).any(axis=1).mean())


def within_monte_carlo_error(rate: float, expected: float, rounding: float) -> bool:
    return abs(rate - expected) <= rounding + 3 * math.sqrt(expected * (1 - expected) / NUM_STREAMS)


# The McNemar e-value


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (0, 1), (3, 2), (2, 9), (17, 5), (30, 30), (0, 25)])
def test_mcnemar_evalue_is_the_integral_of_likelihood_ratios(wins: int, losses: int) -> None:
    integral, _ = integrate.quad(lambda p: 2 * (2 * p) ** wins * (2 * (1 - p)) ** losses, 0.5, 1.0, epsabs=1e-13)
    assert math.exp(mcnemar_log_evalue(wins, losses)) == pytest.approx(integral, rel=1e-8)


def test_mcnemar_evalue_is_the_beta_formula_where_that_does_not_underflow() -> None:
    for wins, losses in [(120, 80), (80, 120), (400, 350)]:
        tail = stats.beta(wins + 1, losses + 1).logsf(0.5)
        log_beta = math.lgamma(wins + 1) + math.lgamma(losses + 1) - math.lgamma(wins + losses + 2)
        expected = (wins + losses + 1) * math.log(2) + log_beta + tail
        assert mcnemar_log_evalue(wins, losses) == pytest.approx(expected, abs=1e-8)


def test_mcnemar_evalue_is_exact_at_the_extremes() -> None:
    assert mcnemar_log_evalue(0, 1000) == pytest.approx(-math.log(1001))
    # With wins only, 2^(b+1)/(b+1) less a term far below rounding.
    assert mcnemar_log_evalue(1000, 0) == pytest.approx(1001 * math.log(2) - math.log(1001))


def test_mcnemar_evalue_grows_with_wins_and_falls_with_losses_up_to_large_counts() -> None:
    for losses in (0, 30, 1000):
        grown = [mcnemar_log_evalue(wins, losses) for wins in (0, 1, 10, 100, 999, 1000)]
        assert np.isfinite(grown).all()
        assert (np.diff(grown) > 0).all()
    assert (np.diff([mcnemar_log_evalue(1000, losses) for losses in (0, 1, 500, 1000, 5000)]) < 0).all()


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(ValueError, match="wins -1 and losses 3"):
        mcnemar_log_evalue(-1, 3)


def test_a_null_challenger_looked_at_every_32_pairs_is_accepted_no_oftener_than_alpha() -> None:
    rate = accept_rate(0.0, seed=11, look_every=32)
    assert 0.003 < rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / NUM_STREAMS)


def test_peeking_at_a_fixed_sample_test_would_break_alpha_on_the_same_streams() -> None:
    # The simulation must be able to fail: a one-look z test looked at every 32 pairs is far above .05.
    streams = cumulative_counts(0.0, discordance=0.2, seed=11, look_every=32)
    z = (streams[..., 0] - streams[..., 1]) / np.sqrt(np.maximum(1, streams[..., 0] + streams[..., 1]))
    assert (z >= 1.645).any(axis=1).mean() > 0.10


@pytest.mark.parametrize(("delta", "expected"), [(0.0, 0.025), (0.06, 0.57), (0.10, 0.97)])
def test_looked_at_after_every_pair_the_reference_rates_come_out(delta: float, expected: float) -> None:
    # The expected rates are themselves rounded in the reference, to .005 and to .01.
    assert within_monte_carlo_error(accept_rate(delta, seed=5), expected, rounding=0.005)


# Betting on the mean


def test_futility_evidence_for_an_effect_at_the_bound_is_held_by_ville() -> None:
    streams = cumulative_counts(0.03, discordance=0.2, seed=3, look_every=32, cap=640)
    assert 0.0 < stopped_rate(streams, bound=0.03) <= 0.10 + 3 * math.sqrt(0.09 / NUM_STREAMS)


def test_harm_evidence_at_the_tolerated_harm_is_held_by_ville() -> None:
    streams = cumulative_counts(-0.05, discordance=0.2, seed=4, look_every=32, cap=640)
    assert 0.0 < stopped_rate(streams, bound=-0.05) <= 0.10 + 3 * math.sqrt(0.09 / NUM_STREAMS)


def test_real_harm_is_found_within_300_pairs() -> None:
    streams = cumulative_counts(-0.20, discordance=0.25, seed=6, look_every=32, cap=300)
    assert stopped_rate(streams, bound=-0.05) > 0.9


def stopped_rate(streams: np.ndarray, bound: float) -> float:
    """Share of streams whose e-value against "mean >= bound" reaches 10 at some look."""
    unique, inverse = np.unique(streams.reshape(-1, 3), axis=0, return_inverse=True)
    values = np.array([less_than_effect_log_evalue(int(w), int(b), int(t), bound) for w, b, t in unique])
    return float((values[inverse].reshape(streams.shape[:2]) >= math.log(10)).any(axis=1).mean())


def test_the_miniature_of_the_betting_process_holds() -> None:
    start = BettingProcess.start(0.03)
    assert start.log_evalue == pytest.approx(0.0, abs=1e-12)
    assert math.exp(start.observed(-1, 10).log_evalue) == pytest.approx(100, rel=0.05)
    assert math.exp(start.observed(1, 10).log_evalue) == pytest.approx(0.3, rel=0.05)


def test_harm_is_the_same_process_at_minus_delta() -> None:
    assert worse_than_log_evalue(3, 20, 40, 0.05) == less_than_effect_log_evalue(3, 20, 40, -0.05)


def test_betting_stays_finite_when_one_side_takes_everything() -> None:
    assert less_than_effect_log_evalue(0, 100_000, 0, 0.03) > 1000
    assert -math.inf < less_than_effect_log_evalue(100_000, 0, 0, 0.03) < 0


def test_betting_refuses_what_would_break_its_guarantee() -> None:
    with pytest.raises(ValueError, match=r"bound: got 1\.0"):
        BettingProcess.start(1.0)
    with pytest.raises(ValueError, match=r"value of D: got 1\.5"):
        BettingProcess.start(0.0).observed(1.5)
    with pytest.raises(ValueError, match="num_times: got -2"):
        BettingProcess.start(0.0).observed(1.0, -2)
    with pytest.raises(ValueError, match=r"PairedCounts\.ties"):
        worse_than_log_evalue(1, 1, -1, 0.05)


# The interval


def test_the_interval_is_bonett_price_by_hand() -> None:
    interval = paired_interval(counts(wins=12, losses=4, ties=84))
    centre, discordant = (13 - 5) / 102, (13 + 5) / 102
    half = stats.norm.ppf(0.975) * math.sqrt((discordant - centre**2) / 102)
    assert (interval.low, interval.value, interval.high) == pytest.approx((centre - half, 0.08, centre + half))


@pytest.mark.parametrize(("delta", "discordance"), [(0.0, 0.02), (0.02, 0.05), (0.1, 0.2), (-0.3, 0.4)])
def test_the_interval_covers_with_little_discordance_and_few_pairs(delta: float, discordance: float) -> None:
    final = cumulative_counts(delta, discordance, seed=8, look_every=60, cap=60)[:, -1]
    unique, num = np.unique(final, axis=0, return_counts=True)
    missed = [paired_interval(counts(*map(int, row))).excludes(delta) for row in unique]
    assert num[missed].sum() / num.sum() <= 0.065


def test_the_interval_of_no_pair_says_nothing() -> None:
    interval = paired_interval(counts())
    assert (interval.low, interval.value, interval.high) == (-1.0, 0.0, 1.0)


@pytest.mark.parametrize("sample", [counts(wins=1000), counts(losses=3), counts(ties=50)])
def test_the_interval_holds_its_estimate_at_the_edges(sample: PairedCounts) -> None:
    for level in (0.1, 0.5, 0.95, 0.999):
        interval = paired_interval(sample, level)
        assert -1.0 <= interval.low <= sample.mean <= interval.high <= 1.0


# The counts


def test_counts_add_mirror_and_average() -> None:
    total = sum([counts(3, 1, 4), counts(1, 0, 2)], start=PairedCounts())
    assert total == counts(4, 1, 6)
    assert (total.num_pairs, total.mean) == (11, 3 / 11)
    assert total.mirrored == counts(1, 4, 6)


def test_counts_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match=r"PairedCounts\.losses: got -1"):
        counts(losses=-1)
    with pytest.raises(ValueError, match="0 pairs"):
        _ = counts().mean


# The rule

BETTER = counts(15, 2, 79)  # 96 pairs, E about 107
HARMED = counts(0, 12, 20)


def test_a_better_challenger_is_accepted_at_a_look() -> None:
    decision = rule().decide(BETTER, {}, counts(ties=20))
    assert decision.verdict is GateVerdict.ACCEPT
    assert math.exp(decision.log_evalue) == pytest.approx(107, rel=0.01)
    assert decision.log_threshold == pytest.approx(math.log(20))
    assert decision.vetoed_by is None


def test_between_looks_the_rule_continues_whatever_the_evidence() -> None:
    decision = rule().decide(BETTER + counts(ties=4), {"sums": HARMED}, HARMED)
    assert decision.verdict is GateVerdict.CONTINUE
    assert decision.log_evalue > decision.log_threshold


def test_before_any_pair_the_rule_continues() -> None:
    assert rule().decide(counts(), {}, HARMED).verdict is GateVerdict.CONTINUE


@pytest.mark.parametrize(("alpha", "verdict"), [(0.0094, GateVerdict.ACCEPT), (0.0093, GateVerdict.CONTINUE)])
def test_the_level_is_the_reciprocal_of_the_evalue(alpha: float, verdict: GateVerdict) -> None:
    assert rule(alpha).decide(BETTER, {}, counts()).verdict is verdict


def test_harm_in_a_family_vetoes_before_acceptance_and_is_named() -> None:
    decision = rule().decide(BETTER, {"sums": counts(9, 0, 20), "strings": HARMED}, counts())
    assert (decision.verdict, decision.vetoed_by, decision.most_harmed) == (GateVerdict.VETO, "strings", "strings")
    assert decision.log_harm >= math.log(10)


def test_harm_on_the_anchors_vetoes() -> None:
    assert rule().decide(BETTER, {"sums": counts(9, 0, 20)}, HARMED).vetoed_by == ANCHORS


def test_weak_evidence_of_harm_does_not_veto() -> None:
    decision = rule().decide(BETTER, {"strings": counts(0, 3, 20)}, counts())
    assert decision.verdict is GateVerdict.ACCEPT
    assert decision.most_harmed == "strings"


def test_the_strongest_harm_is_reported_whatever_the_order_of_families() -> None:
    families = {"a": HARMED, "b": HARMED + counts(losses=3), "c": HARMED}
    reordered = dict(reversed(families.items()))
    assert rule().decide(BETTER, families, counts()) == rule().decide(BETTER, reordered, counts())
    assert rule().decide(BETTER, families, counts()).vetoed_by == "b"


def test_of_equal_harms_the_first_by_name_is_reported() -> None:
    assert rule().decide(BETTER, {"c": HARMED, "a": HARMED, "b": HARMED}, counts()).vetoed_by == "a"


def test_a_worse_challenger_is_rejected_as_futile_before_the_cap() -> None:
    decision = rule().decide(counts(5, 25, 162), {}, counts())
    assert decision.verdict is GateVerdict.REJECT_FUTILE
    assert decision.log_futility >= math.log(10)


def test_the_cap_is_a_look_and_rejects_what_is_undecided() -> None:
    even = counts(10, 8, 82)
    assert rule(max_pairs=100).decide(even, {}, counts()).verdict is GateVerdict.REJECT_CAP
    assert rule(max_pairs=101).decide(even, {}, counts()).verdict is GateVerdict.CONTINUE
    assert rule(max_pairs=100).decide(BETTER + counts(ties=4), {}, counts()).verdict is GateVerdict.ACCEPT


def test_looks_are_the_multiples_and_the_cap() -> None:
    looks = [n for n in range(101) if rule(max_pairs=100).is_look(n)]
    assert looks == [32, 64, 96, 100]


def test_a_family_may_not_take_the_name_of_the_anchors() -> None:
    with pytest.raises(ValueError, match="rename it"):
        rule().decide(BETTER, {ANCHORS: counts()}, counts())


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.0},
        {"alpha": 1.1},
        {"look_every": 0},
        {"max_pairs": 0},
        {"min_effect": -0.1},
        {"futility": 1.0},
        {"futility": math.inf},
        {"harm_delta": 1.0},
        {"veto": math.nan},
    ],
)
def test_a_rule_out_of_range_is_refused_by_name(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"SequentialRule.{next(iter(change))}: got"):
        rule(**change)


def test_a_decision_survives_pickling() -> None:
    decision = rule().decide(BETTER, {"sums": HARMED}, counts())
    assert pickle.loads(pickle.dumps(decision)) == decision
