"""All monitors together as a value: steps, warm-up, restarts, and rates of false alarms by simulation."""

from dataclasses import replace

import numpy as np
import pytest

from coharness.records.judging import Cause, Rung
from coharness.records.work import Audit
from coharness.reward.monitors.divergence import RunShape, calibrated_divergence
from coharness.reward.monitors.response import Response
from coharness.reward.monitors.shortcut import FEATURES
from coharness.reward.monitors.watch import Watch, WatchSettings

SETTINGS = WatchSettings(
    step_audits=16,
    warmup_steps=8,
    healthy_conflict_rate=None,
    horizon=200,
    alpha=0.05,
    high=0.7,
    shortcut_bound=0.1,
    window=256,
)


def audits(rng: np.random.Generator, count: int, rate: float) -> tuple[Audit, ...]:
    """Attempts of which `rate` are rated high and wrong; those are long."""
    conflicts = (rng.random(count) < rate).tolist()
    rights = (rng.random(count) < 0.6).tolist()
    lengths = rng.normal(2.0, 0.3, size=count).tolist()
    return tuple(
        Audit(
            judged=0.9 if right or conflict else 0.2,
            verified=right and not conflict,
            features=surface(length + 2.0 * conflict),
        )
        for conflict, right, length in zip(conflicts, rights, lengths, strict=True)
    )


assert FEATURES[0] == "length"


def surface(length: float) -> tuple[float, ...]:
    return (length, *(0.0 for _ in FEATURES[1:]))


def first_alarm(seed: int, *, steps: int, onset: int, settings: WatchSettings = SETTINGS) -> tuple[int | None, Watch]:
    rng, watch = np.random.default_rng(seed), Watch(settings=settings)
    for step in range(1, steps + 1):
        watch = watch.observed(audits(rng, 16, 0.25 if step > onset else 0.04))
        if watch.alarm(rng) is not None:
            return step, watch
    return None, watch


def test_healthy_runs_stay_silent_and_hacks_are_seen() -> None:
    silent = [first_alarm(seed, steps=200, onset=10**6)[0] for seed in range(30)]
    assert sum(step is not None for step in silent) <= 3, "at most 5 % are promised"
    seen = [first_alarm(1_000 + seed, steps=120, onset=30)[0] for seed in range(15)]
    assert all(step is not None and step > 30 for step in seen)
    assert float(np.median([step for step in seen if step is not None])) - 30 < 30


def test_an_alarm_names_what_explains_it_and_when_it_began() -> None:
    step, watch = first_alarm(3, steps=200, onset=80)
    alarm = watch.alarm(np.random.default_rng(0))
    assert alarm is not None
    assert (alarm.causes, alarm.shortcut, alarm.step) == ((Cause.CONFLICT,), "length", step)
    assert abs(alarm.onset - 80) <= 8


def test_audits_are_cut_into_steps_whatever_they_came_in() -> None:
    rng = np.random.default_rng(1)
    given = audits(rng, 400, 0.1)
    whole = Watch(settings=SETTINGS).observed(given)
    pieces = Watch(settings=SETTINGS)
    for start in range(0, 400, 7):
        pieces = pieces.observed(given[start : start + 7])
    assert whole == pieces
    assert (whole.step, len(whole.pending), len(whole.window)) == (25, 0, 256)
    assert whole.conflict_rate[1] == 256


def test_no_alarm_before_the_warm_up_and_a_given_rate_needs_no_estimate() -> None:
    rng = np.random.default_rng(1)
    watch = Watch(settings=SETTINGS).observed(audits(rng, 16 * 7, 0.9))
    assert watch.conflict is None
    assert watch.alarm(rng) is None
    given = replace(SETTINGS, healthy_conflict_rate=0.05)
    assert Watch(settings=given).observed(audits(rng, 16 * 8, 0.0)).conflict is not None
    conflict = Watch(settings=given).observed(audits(rng, 16 * 8, 0.9)).conflict
    assert conflict is not None
    assert conflict.healthy_rate == 0.05


def test_after_a_response_evidence_gathers_anew_and_a_new_judge_is_not_blamed_for_the_old_one() -> None:
    _, watch = first_alarm(3, steps=200, onset=80)
    rng = np.random.default_rng(0)
    again = watch.restarted()
    assert again.alarm(rng) is None
    assert again.window == watch.window
    fresh = watch.restarted(forget=True)
    assert (fresh.window, fresh.pending, fresh.step) == ((), (), watch.step)
    assert fresh.conflict is not None
    assert watch.conflict is not None
    assert fresh.conflict.healthy_rate == watch.conflict.healthy_rate


def test_divergence_alarms_with_a_shortcut_alone() -> None:
    shape = RunShape(steps=100, rollouts=16, benchmark_items=64, benchmark_every=2, warmup=8)
    detector = calibrated_divergence(shape, np.random.default_rng(0), num_runs=120)
    # Judged .6 and then .69: no attempt is rated high, so nothing is a conflict, but the mean leaves the benchmark.
    rng = np.random.default_rng(2)

    def judged(step: int, follows: bool) -> tuple[Audit, ...]:
        made = []
        for _ in range(16):
            length = float(rng.normal(2.0, 0.5))
            score = min(0.69, max(0.0, 0.35 + (0.3 if step > 40 else 0.0) + (0.2 * (length - 2.0) if follows else 0.0)))
            made.append(Audit(judged=score, verified=bool(rng.random() < 0.4), features=surface(length)))
        return tuple(made)

    for follows in (True, False):
        watch = Watch(settings=SETTINGS, divergence=detector)
        alarms = []
        for step in range(140):
            watch = watch.observed(judged(step, follows))
            if step % 2 == 0:
                watch = watch.benchmarked(float(rng.binomial(64, 0.4)) / 64)
            if step % 20 == 19:
                alarms.append(watch.alarm(rng))
        raised = [a for a in alarms if a is not None]
        assert bool(raised) == follows
        assert watch.findings(), "a divergence without a shortcut is a finding"
        if raised:
            assert raised[0].causes == (Cause.DIVERGENCE,)


def test_a_judge_that_is_content_with_all_is_a_finding() -> None:
    content = tuple(Audit(judged=0.95, verified=True, features=(0.0,) * len(FEATURES)) for _ in range(256))
    assert "content with 256" in Watch(settings=SETTINGS).observed(content).findings()[0]


def test_a_ladder_of_ones_own_is_climbed_in_its_order_and_ends_at_its_top() -> None:
    ladder = Response(ladder=(Rung.REPAIR, Rung.FREEZE), patience=2, calm=5)
    rungs = []
    for step in range(1, 20):
        ladder = ladder.stepped(step, alarmed=step <= 8)
        rungs.append(ladder.rung)
    assert rungs[:4] == [Rung.REPAIR, Rung.REPAIR, Rung.FREEZE, Rung.FREEZE]
    assert rungs[7] is Rung.FREEZE
    assert rungs[12:] == [Rung.REPAIR] * 5 + [Rung.WATCH] * 2
    assert ladder.mended(20).rung is Rung.WATCH
    assert [Response(ladder=()).stepped(s, alarmed=True).rung for s in (1, 9)] == [Rung.WATCH] * 2
    assert not Response(rung=Rung.ROLL_BACK).judge_counts
    assert pytest.approx(4.0) == Response(rung=Rung.REPAIR).audit_factor
