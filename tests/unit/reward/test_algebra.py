"""Parts, means, precedence, constraints, shaping and length against the figures of the reference."""

import math

import numpy as np
import pytest

from coharness.reward.algebra.combine import power_mean, soft_min, weighted_mean
from coharness.reward.algebra.lagrangian import Multiplier, PidGains
from coharness.reward.algebra.length import relative_brevity, unused_share, within_soft_limit
from coharness.reward.algebra.pareto import contributions, front_scores, fronts, hypervolume
from coharness.reward.algebra.part import Part, PartOutcome, by_name, gravest
from coharness.reward.algebra.precedence import pack, verifier_first
from coharness.reward.algebra.reward import Reward
from coharness.reward.algebra.shaping import discounted, future_least, least_step, shaping_terms

ONES = (1.0, 1.0, 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.01, 1.01, True, None])
def test_a_part_is_a_finite_number_in_the_unit_interval_or_no_number(value: float) -> None:
    with pytest.raises(ValueError, match="part 'x' has"):
        Part(name="x", outcome=PartOutcome.OK, value=value)


@pytest.mark.parametrize("outcome", [o for o in PartOutcome if o is not PartOutcome.OK])
def test_no_failure_carries_a_value(outcome: PartOutcome) -> None:
    assert Part.failed("x", outcome, "why").value is None
    with pytest.raises(ValueError, match="a value stands beside ok alone"):
        Part(name="x", outcome=outcome, value=0.0)


def test_only_ok_and_violated_rewards_have_a_value() -> None:
    for outcome in (PartOutcome.ABSTAIN, PartOutcome.PARSE, PartOutcome.INFRA):
        with pytest.raises(ValueError, match="only ok and violated"):
            Reward(value=0.0, outcome=outcome, parts={})
    with pytest.raises(ValueError, match="only ok and violated"):
        Reward(value=None, outcome=PartOutcome.OK, parts={})


def test_a_name_stands_once() -> None:
    with pytest.raises(ValueError, match="'x' stands twice"):
        by_name([Part.ok("x", 0.1), Part.ok("x", 0.2)])


def test_the_gravest_outcome_wins() -> None:
    assert gravest([PartOutcome.ABSTAIN, PartOutcome.INFRA, PartOutcome.OK]) is PartOutcome.INFRA
    assert gravest([]) is PartOutcome.OK


@pytest.mark.parametrize(
    ("values", "expected"), [((0.9, 0.9, 0.1), 0.1316), ((0.6, 0.6, 0.6), 0.6), ((1.0, 1.0, 0.3), 0.393)]
)
def test_a_steep_power_mean_is_led_by_its_lowest_value(values: tuple[float, ...], expected: float) -> None:
    assert power_mean(values, ONES, -4.0) == pytest.approx(expected, abs=5e-4)


def test_soft_min_and_mean_at_the_reference_point() -> None:
    assert soft_min((0.9, 0.9, 0.1), ONES, 0.1) == pytest.approx(0.2098, abs=1e-4)
    assert weighted_mean((0.9, 0.9, 0.1), ONES) == pytest.approx(0.6333, abs=1e-4)


def test_special_exponents_are_the_means_they_are_named_for() -> None:
    x, w = (0.2, 0.5, 0.9), (1.0, 2.0, 3.0)
    share = np.asarray(w) / sum(w)
    assert power_mean(x, w, 1.0) == pytest.approx(float(share @ np.asarray(x)))
    assert power_mean(x, w, 0.0) == pytest.approx(float(np.exp(share @ np.log(x))))
    assert power_mean(x, w, -1.0) == pytest.approx(float(1 / (share @ (1 / np.asarray(x)))))
    assert power_mean(x, w, -math.inf) == 0.2
    assert power_mean(x, w, math.inf) == 0.9
    assert power_mean(x, w, -100.0) == pytest.approx(0.2, abs=0.01)
    assert math.isfinite(power_mean((0.0, 1.0), (1.0, 1.0), -100.0))


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, -1.0), (1.0,), (1.0, math.nan)])
def test_weights_are_positive_and_as_many_as_values(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        weighted_mean((0.1, 0.2), weights)


def test_precedence_refuses_what_could_tie() -> None:
    with pytest.raises(ValueError, match="cap is 1"):
        verifier_first(False, 1.0, cap=1.0)
    assert verifier_first(True, 0.0) == 0.5
    assert verifier_first(False, 1.0, cap=0.9) == 0.45
    assert verifier_first(False, 1.0, partial=0.5) == pytest.approx(0.375)


def test_packing_keeps_lexicographic_order_of_steps() -> None:
    grid = np.linspace(0, 1, 6).tolist()
    triples = [(a, b, c) for a in grid for b in grid for c in grid]
    packed = {t: pack(t, (2, 3)) for t in triples}
    steps = {t: (min(int(t[0] * 2), 1), min(int(t[1] * 3), 2), t[2]) for t in triples}
    for a in triples[::7]:
        for b in triples[::11]:
            assert (packed[a] < packed[b]) == (steps[a] < steps[b])
    assert min(packed.values()) >= 0.0
    assert max(packed.values()) <= 1.0


def test_the_multiplier_follows_the_reference_trace() -> None:
    state = Multiplier.start(PidGains(limit=0.1, ki=0.5), 0.5)
    trace = []
    for cost in (0.3, 0.2, 0.05):
        state = state.observed([cost])
        trace.append(state.value)
    assert trace == pytest.approx([0.60, 0.65, 0.625])


def test_a_multiplier_never_leaves_its_range_and_ignores_an_empty_batch() -> None:
    gains = PidGains(limit=0.1, ki=5.0, kp=3.0, kd=2.0, max_multiplier=1.5)
    state = Multiplier.start(gains)
    assert state.observed([]) == state
    for cost in (1.0, 1.0, 0.0, 0.0, 0.0, 1.0):
        state = state.observed([cost, cost])
        assert 0.0 <= state.value <= 1.5
    with pytest.raises(ValueError, match="leave failed parts out"):
        state.observed([math.nan])


def test_a_rise_of_cost_is_answered_at_once_and_a_fall_is_not() -> None:
    plain = Multiplier.start(PidGains(limit=0.1, ki=0.1)).observed([0.1])
    quick = Multiplier.start(PidGains(limit=0.1, ki=0.1, kd=1.0)).observed([0.1])
    assert quick.observed([0.5]).value == pytest.approx(plain.observed([0.5]).value + 0.4)
    assert quick.observed([0.05]).value == plain.observed([0.05]).value


def test_few_samples_do_not_release_a_constraint() -> None:
    costs = [0.0, 0.2]
    sure = Multiplier.start(PidGains(limit=0.1, ki=0.5), 0.5).observed(costs).value
    careful = Multiplier.start(PidGains(limit=0.1, ki=0.5, confidence_z=1.64), 0.5).observed(costs).value
    assert sure == pytest.approx(0.5)
    assert careful == pytest.approx(0.5 + 0.5 * 1.64 * 0.1)


def test_shaping_telescopes() -> None:
    potentials = (0.0, 0.4, 0.7, 1.0)
    assert discounted(shaping_terms(potentials, 0.9), 0.9) == pytest.approx(0.729)


def test_potential_based_shaping_keeps_the_optimal_policy_of_a_small_world() -> None:
    rng = np.random.default_rng(0)
    num_states, num_actions, gamma = 5, 3, 0.9
    for _ in range(5):
        moves = rng.dirichlet(np.ones(num_states), size=(num_states, num_actions))  # [S, A, S]
        rewards = rng.normal(size=(num_states, num_actions))
        phi = rng.normal(size=num_states)
        shaped = rewards + np.array(
            [
                [sum(moves[s, a, t] * shaping_terms((phi[s], phi[t]), gamma)[0] for t in range(num_states))
                 for a in range(num_actions)]
                for s in range(num_states)
            ]
        )  # fmt: skip

        def best(table: np.ndarray, moves: np.ndarray = moves) -> list[int]:
            values = np.zeros(num_states)
            for _ in range(400):
                values = (table + gamma * moves @ values).max(axis=1)
            return (table + gamma * moves @ values).argmax(axis=1).tolist()

        assert best(shaped) == best(rewards)


def test_further_steps_never_raise_a_chain() -> None:
    steps = [0.9, 0.7, 0.8]
    assert least_step(steps) == 0.7
    assert all(least_step([*steps, extra]) <= least_step(steps) for extra in (0.0, 0.5, 1.0))
    assert future_least(steps) == [0.7, 0.7, 0.8]
    with pytest.raises(ValueError, match="at least one"):
        least_step([])


def test_length_terms() -> None:
    assert unused_share(16, 64) == 0.75
    assert [within_soft_limit(n, 100, 20) for n in (10, 80, 90, 100, 140)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert relative_brevity([10, 20, 30], [True, True, True]) == [1.0, 0.5, 0.0]
    assert relative_brevity([10, 20, 30], [False, True, False]) == [0.5, 0.5, 0.0]
    assert relative_brevity([7, 7], [True, False]) == [0.5, 0.5]


def test_fronts_and_volumes_by_hand() -> None:
    points = [(1.0, 0.5), (0.5, 1.0), (0.5, 0.5), (0.2, 0.2), (1.0, 0.5)]
    assert fronts(points) == [0, 0, 1, 2, 0]
    assert hypervolume(points) == pytest.approx(0.75)
    assert contributions([(1.0, 0.5), (0.5, 1.0)]) == pytest.approx([0.25, 0.25])
    assert contributions([(1.0, 0.5), (1.0, 0.5)]) == [0.0, 0.0]
    scores = front_scores(points)
    assert min(scores[0], scores[1], scores[4]) > scores[2] > scores[3] > 0


def test_hypervolume_agrees_with_sampling() -> None:
    rng = np.random.default_rng(1)
    draws = rng.random((40_000, 3))
    for _ in range(3):
        points = [tuple(p) for p in rng.random((7, 3))]
        covered = np.zeros(len(draws), dtype=bool)
        for point in points:
            covered |= (draws <= np.asarray(point)).all(axis=1)
        assert hypervolume(points) == pytest.approx(covered.mean(), abs=0.012)
