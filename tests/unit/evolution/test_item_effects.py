"""Difficulty taken out: the fit is an optimum, and uneven tasks no longer order the members."""

import numpy as np
import pytest
from scipy.optimize import minimize

from coharness.evolution.item_effects import fit_item_effects


def test_the_fit_is_the_optimum_of_the_penalised_likelihood() -> None:
    generator = np.random.default_rng(0)
    outcomes = [
        (i, j, float(generator.integers(0, 4)), float(generator.integers(0, 4))) for i in range(3) for j in range(4)
    ]

    def loss(z: np.ndarray) -> float:
        theta, b = z[:3], z[3:]
        total = 0.5 * (theta @ theta) / 9 + 0.5 * (b @ b) / 2.25
        for i, j, won, lost in outcomes:
            logit = theta[i] - b[j]
            total += won * np.log1p(np.exp(-logit)) + lost * np.log1p(np.exp(logit))
        return float(total)

    found = fit_item_effects(outcomes, 3, 4)
    expected = minimize(loss, np.zeros(7), method="BFGS", options={"gtol": 1e-10})
    assert np.concatenate([found.ability, found.difficulty]) == pytest.approx(expected.x, abs=1e-5)


def test_a_member_that_met_only_hard_items_is_not_punished() -> None:
    generator = np.random.default_rng(1)
    difficulty = np.linspace(-2, 2, 20)
    ability = [1.0, 0.0]
    met = {0: range(10, 20), 1: range(10)}
    outcomes = []
    for i, items in met.items():
        for j in items:
            p = 1 / (1 + np.exp(difficulty[j] - ability[i]))
            won = float(generator.binomial(200, p))
            outcomes.append((i, j, won, 200 - won))
    # Two referees met everything, so that the items are known.
    for i in (2, 3):
        for j in range(20):
            won = float(generator.binomial(200, 1 / (1 + np.exp(difficulty[j] - 0.5))))
            outcomes.append((i, j, won, 200 - won))
    rate = {
        i: sum(o[2] for o in outcomes if o[0] == i) / sum(o[2] + o[3] for o in outcomes if o[0] == i) for i in (0, 1)
    }
    assert rate[0] < rate[1], "the raw rates are the wrong way round"
    found = fit_item_effects(outcomes, 4, 20)
    assert found.ability[0] - found.ability[1] == pytest.approx(1.0, abs=0.3)
    assert found.success(0) > found.success(1)
    assert found.error[0] < 0.7


def test_on_the_same_items_it_orders_members_as_their_rates_do() -> None:
    outcomes = [(i, j, float(i + 1), float(4 - i)) for i in range(4) for j in range(3)]
    found = fit_item_effects(outcomes, 4, 3)
    assert list(np.argsort(found.ability)) == [0, 1, 2, 3]


def test_all_right_and_all_wrong_stay_finite() -> None:
    found = fit_item_effects([(0, 0, 50, 0), (1, 0, 0, 50)], 3, 1)
    assert np.isfinite(found.ability).all()
    assert found.ability[0] > found.ability[2] > found.ability[1]
    assert found.error[2] == pytest.approx(3.0), "who met nothing is as unknown as before"


@pytest.mark.parametrize("outcome", [(5, 0, 1.0, 0.0), (0, 7, 1.0, 0.0), (0, 0, -1.0, 0.0)])
def test_an_outcome_of_nobody_is_refused(outcome: tuple[int, int, float, float]) -> None:
    with pytest.raises(ValueError, match="outcome"):
        fit_item_effects([outcome], 2, 2)
