"""Weights on the simplex, by phase, by bandits and by anchors, against brute force and published formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from coharness.reward.judges.rubric import Criterion, Rubric
from coharness.reward.weighting.apply import reweighted
from coharness.reward.weighting.bandit import Exp3, Thompson
from coharness.reward.weighting.bilevel import anchor_gradient, anchor_log_likelihood, spsa_gradient, step
from coharness.reward.weighting.phases import Phase, PhaseSchedule
from coharness.reward.weighting.simplex import check_weights, moved, normalised, project

POINTS = st.lists(st.floats(-3, 3), min_size=1, max_size=6)


@given(POINTS)
def test_the_projection_is_the_nearest_point_of_the_simplex(point: list[float]) -> None:
    got = project(point)
    check_weights(got)
    # Optimality: no point of the simplex lies further along what is left over (variational inequality at the corners).
    left = np.asarray(point) - got
    assert all(left @ (corner - got) <= 1e-9 for corner in np.eye(len(point)))


def test_the_projection_agrees_with_a_solver_of_quadratic_programs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        v = rng.normal(0, 1, 4)
        found = optimize.minimize(
            lambda w, v=v: ((w - v) ** 2).sum(),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        np.testing.assert_allclose(project(v), found.x, atol=1e-5)


@given(st.integers(2, 6), st.integers(0, 10_000), st.floats(0.01, 2.5))
def test_a_move_is_never_longer_than_allowed_and_gets_there_where_it_can(k: int, seed: int, drift: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k))
    got = moved(a, b, drift)
    check_weights(got)
    assert np.abs(got - a).sum() <= drift + 1e-9
    if np.abs(b - a).sum() <= drift:
        np.testing.assert_array_equal(got, b)
    else:
        assert np.abs(got - a).sum() == pytest.approx(drift)


def test_weights_off_the_simplex_are_refused() -> None:
    for bad in ([], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0]):
        with pytest.raises(ValueError, match="sum to 1"):
            check_weights(bad)
    with pytest.raises(ValueError, match="above 0"):
        normalised({"a": 0.0})


def schedule(blend: float = 0.1) -> PhaseSchedule:
    return PhaseSchedule(
        phases=(
            Phase(name="form", until=0.3, weights={"format": 2, "correct": 0}),
            Phase(name="truth", until=1.0, weights={"format": 1, "correct": 3}),
        ),
        blend=blend,
    )


def test_phases_hold_their_weights_and_blend_around_their_ends() -> None:
    made = schedule()
    assert made.at(0.0) == {"format": 1.0, "correct": 0.0}
    assert made.at(1.0) == {"format": 0.25, "correct": 0.75}
    assert made.at(0.3)["format"] == pytest.approx((1.0 + 0.25) / 2)
    path = [made.at(p)["format"] for p in np.linspace(0, 1, 2001)]
    assert np.abs(np.diff(path)).max() < 0.75 / 0.1 / 2000 + 1e-9, "no jump"
    assert path == sorted(path, reverse=True)
    assert schedule(0.0).at(0.3)["format"] == 1.0
    assert schedule(0.0).at(0.3001)["format"] == 0.25


def test_a_schedule_that_makes_no_sense_is_refused() -> None:
    weights = {"a": 1.0}
    with pytest.raises(ValueError, match="the last is 1"):
        PhaseSchedule(phases=(Phase(name="x", until=0.5, weights=weights),))
    with pytest.raises(ValueError, match="shortest phase"):
        schedule(0.5)
    with pytest.raises(ValueError, match="different criteria"):
        PhaseSchedule(
            phases=(Phase(name="x", until=0.5, weights=weights), Phase(name="y", until=1.0, weights={"b": 1}))
        )
    with pytest.raises(ValueError, match="progress"):
        schedule().at(1.1)


def test_exp3_estimates_payoffs_without_bias() -> None:
    """The mean of payoff / probability over the choice is the payoff: what its proof rests on."""
    bandit = Exp3(gamma=0.3, log_weights=(0.0, 1.0, 2.0))
    p, payoffs = bandit.probabilities, np.asarray([0.2, 0.9, 0.4])
    assert p.sum() == pytest.approx(1.0)
    assert p.min() >= 0.1 - 1e-12, "each arm has its share of exploration"
    raised = np.zeros(3)
    for arm in range(3):
        after = np.asarray(bandit.observed(arm, float(payoffs[arm])).log_weights)
        raised += p[arm] * (after - np.asarray(bandit.log_weights)) * 3 / 0.3
    np.testing.assert_allclose(raised, payoffs)


def test_exp3_keeps_its_regret_bound_on_a_switching_adversary() -> None:
    rng = np.random.default_rng(1)
    rounds, arms = 2_000, 3
    payoffs = np.zeros((rounds, arms))
    payoffs[: rounds // 2, 0] = 1.0
    payoffs[rounds // 2 :, 1] = 1.0
    payoffs[:, 2] = 0.6
    bandit, earned = Exp3.for_horizon(arms, rounds), 0.0
    for row in payoffs:
        arm = bandit.choose(rng)
        earned += row[arm]
        bandit = bandit.observed(arm, float(row[arm]))
    bound = 2 * math.sqrt(math.e - 1) * math.sqrt(rounds * arms * math.log(arms))
    assert payoffs.sum(axis=0).max() - earned <= bound


def test_thompson_has_the_conjugate_posterior_and_forgets() -> None:
    bandit = Thompson.start(2, discount=1.0)
    for payoff in (0.9, 0.7, 0.8):
        bandit = bandit.observed(0, payoff)
    precision = 1 / 0.25 + 3 / 0.0625
    mean, deviation = bandit.posterior
    assert mean[0] == pytest.approx((0.5 / 0.25 + 2.4 / 0.0625) / precision)
    assert deviation[0] == pytest.approx(precision**-0.5)
    assert (mean[1], deviation[1]) == (pytest.approx(0.5), pytest.approx(0.5))
    forgetful = Thompson.start(2, discount=0.5).observed(0, 1.0).observed(1, 0.0).observed(1, 0.0)
    assert forgetful.counts == (0.25, 1.5)


def test_bandits_find_the_better_arm_and_refuse_payoffs_outside_their_range() -> None:
    for start in (Exp3.for_horizon(2, 400), Thompson.start(2)):
        rng, bandit, good = np.random.default_rng(3), start, 0
        for n in range(400):
            arm = bandit.choose(rng)
            good += (arm == 1) * (n >= 200)
            bandit = bandit.observed(arm, float(rng.random() < (0.3, 0.8)[arm]))
        assert good > 130, "of the last 200 choices"
        with pytest.raises(ValueError, match=r"in \[0, 1\]"):
            start.observed(0, 1.2)
        with pytest.raises(ValueError, match="expected 0 to 1"):
            start.observed(2, 1.0)


def anchors(seed: int = 0, num: int = 400) -> np.ndarray:
    """Truth counts the first criterion twice, the second once, the third not at all."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (num, 3))
    sign = np.where(rng.random(num) < 1 / (1 + np.exp(-6 * (x @ [2 / 3, 1 / 3, 0.0]))), 1.0, -1.0)
    return x * sign[:, None]


def test_the_gradient_of_the_anchors_is_that_of_their_likelihood() -> None:
    x, w = anchors(), np.asarray([0.2, 0.3, 0.5])
    for k in range(3):
        e = 1e-6 * np.eye(3)[k]
        wanted = (anchor_log_likelihood(w + e, x) - anchor_log_likelihood(w - e, x)) / 2e-6
        assert anchor_gradient(w, x)[k] == pytest.approx(wanted, rel=1e-5)
    assert anchor_log_likelihood(w, np.zeros((1, 3))) == pytest.approx(-math.log(2))


def test_steps_climb_to_what_truth_counts_and_stay_short() -> None:
    x, w = anchors(), np.full(3, 1 / 3)
    for _ in range(60):
        before, w = w, step(w, anchor_gradient(w, x, sharpness=6.0), rate=0.1)
        assert np.abs(w - before).sum() <= 0.1 + 1e-9
        assert anchor_log_likelihood(w, x, sharpness=6.0) >= anchor_log_likelihood(before, x, sharpness=6.0) - 1e-12
    np.testing.assert_allclose(w, [2 / 3, 1 / 3, 0.0], atol=0.08)


def test_two_evaluations_point_uphill_on_average_and_stay_on_the_simplex() -> None:
    x, w, rng = anchors(), np.asarray([0.2, 0.3, 0.5]), np.random.default_rng(5)
    asked = []

    def evaluate(tried: np.ndarray) -> float:
        asked.append(check_weights(tried))
        return anchor_log_likelihood(tried, x)

    exact = anchor_gradient(w, x)
    mean = np.mean([spsa_gradient(evaluate, w, rng) for _ in range(300)], axis=0)
    tangent = exact - exact.mean()
    assert mean @ tangent / np.linalg.norm(mean) / np.linalg.norm(tangent) > 0.9
    assert len(asked) == 600


def test_anchors_with_a_missing_criterion_are_refused() -> None:
    with pytest.raises(ValueError, match="criterion is missing"):
        anchor_gradient(np.asarray([0.5, 0.5]), [[0.1, math.nan]])


def test_a_reweighted_rubric_is_another_rubric_with_the_same_sum() -> None:
    rubric = Rubric(
        name="r", about="", criteria=(Criterion(name="a", text="A.", weight=2.0), Criterion(name="b", text="B."))
    )
    other = reweighted(rubric, {"b": 3.0, "a": 1.0})
    assert [c.weight for c in other.criteria] == pytest.approx([0.75, 2.25])
    assert other.version != rubric.version
    assert other.score({"a": 1.0, "b": 0.0}) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="one for each criterion"):
        reweighted(rubric, {"a": 1.0})
