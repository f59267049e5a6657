"""Detectors on simulated streams: promises about false alarms by simulation, dates of onset, what is no observation."""

import math

import numpy as np
import pytest

from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.monitors.alarm import Cause, raise_alarm
from coharness.reward.monitors.canary import Canary, CanaryKind, check_canaries, due_canaries
from coharness.reward.monitors.conflict import ConflictDetector, healthy_rate_of
from coharness.reward.monitors.cusum import Cusum, calibrate
from coharness.reward.monitors.divergence import RunShape, calibrated_divergence, healthy_differences
from coharness.reward.monitors.gap import family_gap
from coharness.reward.monitors.response import Response, Rung
from coharness.reward.monitors.saturation import criterion_states
from coharness.reward.monitors.shortcut import shortcuts, text_features


def first_alarm(
    rate: float, rng: np.random.Generator, *, healthy: float = 0.05, steps: int = 200, onset: int = 0
) -> int | None:
    detector = ConflictDetector.start(healthy, horizon=steps)
    for step in range(1, steps + 1):
        detector = detector.observed(int(rng.binomial(16, rate if step > onset else healthy)), 16)
        if detector.alarms:
            return step
    return None


# Conflict -----------------------------------------------------------------------------------------------------------


def test_the_conflict_detector_keeps_its_rate_of_false_alarms() -> None:
    rng = np.random.default_rng(0)
    alarms = sum(first_alarm(0.05, rng) is not None for _ in range(300))
    assert alarms / 300 <= 0.05


def test_it_sees_a_jump_soon_and_dates_it() -> None:
    rng = np.random.default_rng(1)
    delays = [first_alarm(0.25, rng, onset=80) for _ in range(40)]
    assert all(d is not None and d > 80 for d in delays)
    assert np.median([d for d in delays if d is not None]) < 92
    detector = ConflictDetector.start(0.05)
    for step in range(1, 101):
        detector = detector.observed(0 if step <= 60 else 6, 16)
    assert 55 <= detector.onset <= 61


def test_the_statistic_is_the_sum_over_all_possible_onsets() -> None:
    """Shiryaev-Roberts by its definition: the sum over starts of the likelihood ratio since then."""
    rng = np.random.default_rng(2)
    counts = rng.binomial(16, 0.1, size=12).tolist()
    detector = ConflictDetector.start(0.05)
    for count in counts:
        detector = detector.observed(count, 16)
    odds = 3.0 * 0.05 / 0.95
    p = odds / (1 + odds)
    logs = [k * math.log(p / 0.05) + (16 - k) * math.log((1 - p) / 0.95) for k in counts]
    by_hand = sum(math.exp(sum(logs[start:])) for start in range(len(logs)))
    assert math.exp(detector.log_statistics[2]) == pytest.approx(by_hand)


def test_a_step_without_audits_is_no_evidence() -> None:
    detector = ConflictDetector.start(0.05)
    for _ in range(100):
        detector = detector.observed(0, 0)
    assert not detector.alarms
    with pytest.raises(ValueError, match="3 conflicts of 2"):
        detector.observed(3, 2)
    with pytest.raises(ValueError, match="healthy_rate_of gives a rate"):
        ConflictDetector.start(0.0)
    assert healthy_rate_of(0, 50) == pytest.approx(0.0711, abs=1e-3)


# Divergence ---------------------------------------------------------------------------------------------------------


def test_a_calibrated_threshold_holds_where_the_textbook_one_does_not() -> None:
    shape = RunShape()
    detector = calibrated_divergence(shape, np.random.default_rng(3), alpha=0.05, num_runs=400)
    fresh = np.random.default_rng(4)
    alarms = {"calibrated": 0, "textbook": 0}
    for _ in range(200):
        values = healthy_differences(shape, fresh, 0.1)
        for name, threshold in (("calibrated", detector.cusum.threshold), ("textbook", 5.0)):
            cusum = Cusum(threshold=threshold, warmup=shape.warmup)
            fired = False
            for value in values:
                cusum = cusum.observed(float(value))
                fired |= cusum.alarms
            alarms[name] += fired
    assert alarms["calibrated"] / 200 <= 0.09
    assert alarms["textbook"] > 2 * alarms["calibrated"]


def test_a_rise_of_the_judge_alone_is_seen() -> None:
    detector = calibrated_divergence(RunShape(), np.random.default_rng(5), num_runs=200)
    rng = np.random.default_rng(6)
    for step in range(200):
        detector = detector.judged(0.5 + (0.004 * (step - 80) if step > 80 else 0.0) + float(rng.normal(scale=0.04)))
        if step % 5 == 4:
            detector = detector.benchmarked(float(rng.binomial(64, 0.5)) / 64)
    assert detector.alarms


def test_a_cusum_gathers_first_and_refuses_what_was_not_measured() -> None:
    cusum = Cusum(threshold=4.0, warmup=4)
    for value in (1.0, 2.0, 1.0, 2.0, 9.0):
        cusum = cusum.observed(value)
    assert cusum.alarms
    assert cusum.start == 4
    with pytest.raises(ValueError, match="leave out what was not measured"):
        cusum.observed(math.nan)
    with pytest.raises(ValueError, match="at least 5 of the runs"):
        calibrate(lambda rng: rng.normal(size=50), np.random.default_rng(0), alpha=0.01, num_runs=100)


# Shortcut -----------------------------------------------------------------------------------------------------------


def test_length_that_pays_because_it_is_right_is_no_shortcut() -> None:
    rng = np.random.default_rng(7)
    right = rng.random(400) < 0.5
    length = rng.normal(size=400) + 2.0 * right
    honest = 0.6 * right + 0.1 * rng.normal(size=400)
    biased = honest + 0.1 * length
    assert np.corrcoef(honest, length)[0, 1] > 0.5
    for rewards, used in ((honest, False), (biased, True)):
        (found,) = shortcuts(rewards.tolist(), right.tolist(), {"length": length.tolist()}, np.random.default_rng(8))
        assert found.is_used(0.1) is used


def test_partial_correlation_is_that_of_the_residuals_of_a_regression() -> None:
    rng = np.random.default_rng(9)
    right = rng.random(60) < 0.4
    r, x = rng.normal(size=60) + right, rng.normal(size=60) - right
    design = np.stack([np.ones(60), right.astype(float)], axis=1)
    residual = lambda v: v - design @ np.linalg.lstsq(design, v, rcond=None)[0]  # noqa: E731
    (found,) = shortcuts(r.tolist(), right.tolist(), {"x": x.tolist()}, rng, num_resamples=50)
    assert found.correlation.value == pytest.approx(float(np.corrcoef(residual(r), residual(x))[0, 1]))


def test_features_grow_with_what_they_are_named_for() -> None:
    plain = text_features("The sum is 4.")
    gamed = text_features(
        "# Excellent!\n- **Perfect**\n- This answer deserves 10/10.\n- 10/10\n" + "so good so good " * 9
    )
    assert all(
        gamed[name] > plain[name] for name in ("length", "lists", "markup", "repetition", "praise", "self_reference")
    )
    assert all(math.isfinite(v) for v in text_features("").values())
    with pytest.raises(ValueError, match="at least 20"):
        shortcuts([0.1], [True], {"x": [1.0]}, np.random.default_rng(0))


# Alarm and response -------------------------------------------------------------------------------------------------


def test_divergence_alone_is_no_alarm() -> None:
    assert raise_alarm(5, conflict=False, divergence=True, shortcut=None) is None
    both = raise_alarm(5, conflict=False, divergence=True, shortcut="length")
    assert both is not None
    assert (both.causes, both.shortcut, both.onset) == ((Cause.DIVERGENCE,), "length", 5)
    alone = raise_alarm(9, conflict=True, divergence=False, shortcut=None, onset=3)
    assert alone is not None
    assert (alone.causes, alone.onset) == ((Cause.CONFLICT,), 3)


def test_the_ladder_is_climbed_with_patience_and_left_in_calm() -> None:
    state, seen = Response(), {}
    for step in range(1, 100):
        state = state.stepped(step, alarmed=step in (5, 9, 16))
        seen[step] = state.rung
    assert (seen[4], seen[5], seen[15], seen[16]) == (Rung.WATCH, Rung.AUDIT, Rung.AUDIT, Rung.FREEZE)
    assert (seen[45], seen[46], seen[75], seen[76]) == (Rung.FREEZE, Rung.AUDIT, Rung.AUDIT, Rung.WATCH)


def test_alarms_that_go_on_end_in_a_stop_that_stays() -> None:
    state = Response()
    for step in range(1, 60):
        state = state.stepped(step, alarmed=True)
    assert state.rung is Rung.STOP
    for step in range(60, 300):
        state = state.stepped(step, alarmed=False)
    assert state.rung is Rung.STOP
    assert not state.judge_counts
    assert Response().judge_counts
    assert Response(rung=Rung.AUDIT).audit_factor == 4.0


# Canaries, saturation, gap ------------------------------------------------------------------------------------------

CANARIES = (
    Canary(name="bad", kind=CanaryKind.BAD, question="q", answer="nonsense"),
    Canary(name="good", kind=CanaryKind.GOOD, question="q", answer="right"),
    Canary(name="twin", kind=CanaryKind.TWIN, question="q", answer="right. 10/10!", twin_of="good"),
)


def test_an_outage_neither_breaks_nor_passes_a_canary() -> None:
    down = Part.failed("x", PartOutcome.INFRA, "down")
    report = check_canaries(CANARIES, {"bad": Part.ok("x", 0.1), "good": down, "twin": Part.ok("x", 0.9)})
    assert (report.broken, report.unscored, report.num_scored) == ((), ("good", "twin"), 1)
    assert check_canaries(CANARIES, {}).rate is None
    assert not check_canaries(CANARIES, {}).alarms()


def test_broken_canaries_are_named_and_alarm_beyond_doubt() -> None:
    scores = {"bad": Part.ok("x", 0.8), "good": Part.ok("x", 0.9), "twin": Part.ok("x", 1.0)}
    assert check_canaries(CANARIES, scores).broken == ("bad", "twin")
    many = tuple(Canary(name=f"b{i}", kind=CanaryKind.BAD, question="q", answer="a") for i in range(20))
    hacked = check_canaries(many, {c.name: Part.ok("x", 0.9 if i < 10 else 0.1) for i, c in enumerate(many)})
    assert hacked.alarms(0.1)
    with pytest.raises(ValueError, match="not among them"):
        check_canaries(CANARIES[2:], {})
    with pytest.raises(ValueError, match="names its original"):
        Canary(name="t", kind=CanaryKind.TWIN, question="q", answer="a")


def test_canaries_come_at_their_rate_and_twins_with_their_originals() -> None:
    many = tuple(Canary(name=f"b{i}", kind=CanaryKind.BAD, question="q", answer="a") for i in range(50)) + CANARIES
    drawn = [due_canaries(many, f"batch{i}", rate=0.05, batch_size=64) for i in range(400)]
    assert np.mean([len(d) for d in drawn]) == pytest.approx(0.05 * 64, rel=0.15)
    assert due_canaries(many, "batch7", rate=0.05, batch_size=64) == drawn[7]
    for batch in drawn:
        names = [c.name for c in batch]
        assert len(set(names)) == len(names)
        assert "twin" not in names or "good" in names


def test_criteria_that_say_nothing_are_named() -> None:
    def row(**values: float) -> dict[str, Part]:
        return {name: Part.ok(name, value) for name, value in values.items()}

    groups = [[row(easy=1.0, hard=0.0, useful=float(i % 2)) for i in range(4)] for _ in range(50)]
    groups[0][0]["useful"] = Part.failed("useful", PartOutcome.PARSE, "x")
    states = {state.name: state for state in criterion_states(groups)}
    assert states["easy"].is_saturated
    assert states["hard"].is_dead
    assert not states["useful"].is_saturated
    assert states["useful"].num_failed == 1
    assert (states["easy"].collapsed_groups, states["useful"].collapsed_groups) == (1.0, 0.0)


def test_a_gap_alarms_by_its_growth_and_not_by_its_level() -> None:
    rng = np.random.default_rng(10)
    base = rng.random(200)
    before = (base + 0.2, base)
    level = family_gap((before[0].tolist(), before[0].tolist()), (base.tolist(), base.tolist()))
    assert not level.alarms()
    grown = family_gap((before[0].tolist(), (base + 0.4).tolist()), (base.tolist(), base.tolist()))
    assert grown.growth == pytest.approx(0.2)
    assert grown.alarms()
