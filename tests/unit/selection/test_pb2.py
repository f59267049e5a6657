"""The bandit over settings: its process against closed forms and scikit-learn, its choices against a known optimum."""

import math

import numpy as np
import pytest
from scipy import stats

from coharness.evolution.selection.contract import Genes, Interval, Population
from coharness.evolution.selection.exp3 import option_probabilities
from coharness.evolution.selection.gaussian_process import Kernel, condition, fit
from coharness.evolution.selection.pb2 import PB2, confidence, standardised, with_pending
from coharness.evolution.selection.truncation import Truncation
from coharness.spaces.discrete import Choice
from coharness.spaces.ranges import Real
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree, When
from tests.unit.selection.people import people, rng

KERNEL = Kernel(scale=1.3, length=0.4, noise=0.2, forgetting=0.1)


def data(seed: int, num: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = rng(seed)
    return generator.random((num, 2)), generator.integers(0, 6, num).astype(float), generator.normal(size=num)


def slow_kernel(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    num = len(x)
    found = np.empty((num, num))
    for i in range(num):
        for j in range(num):
            distance = math.dist(x[i], x[j])
            found[i, j] = 1.3**2 * math.exp(-(distance**2) / (2 * 0.4**2)) * 0.9 ** (abs(t[i] - t[j]) / 2)
    return found


def test_the_posterior_and_the_likelihood_are_the_closed_forms() -> None:
    x, t, y = data(0)
    process = condition(KERNEL, x, t, y)
    new, now = rng(1).random((4, 2)), np.full(4, 7.0)
    both = slow_kernel(np.vstack([x, new]), np.concatenate([t, now]))
    noisy = both[:12, :12] + 0.04 * np.eye(12)
    cross = both[12:, :12]
    assert process.mean(new, now) == pytest.approx(cross @ np.linalg.solve(noisy, y))
    variance = np.diag(both[12:, 12:] - cross @ np.linalg.solve(noisy, cross.T))
    assert process.deviation(new, now) == pytest.approx(np.sqrt(variance))
    assert process.log_likelihood == pytest.approx(stats.multivariate_normal(np.zeros(12), noisy).logpdf(y))


def test_without_forgetting_it_is_scikit_learns_process() -> None:
    sklearn = pytest.importorskip("sklearn.gaussian_process", reason="scikit-learn is not installed")
    x, t, y = data(2)
    kernel = 1.3**2 * sklearn.kernels.RBF(0.4)
    theirs = sklearn.GaussianProcessRegressor(kernel, alpha=0.04, optimizer=None).fit(x, y)
    still = Kernel(scale=1.3, length=0.4, noise=0.2, forgetting=0.0)
    new = rng(3).random((5, 2))
    mean, deviation = theirs.predict(new, return_std=True)
    ours = condition(still, x, t, y)
    assert ours.mean(new, np.zeros(5)) == pytest.approx(mean)
    assert ours.deviation(new, np.zeros(5)) == pytest.approx(deviation)


def test_fitting_does_not_lose_likelihood_and_finds_the_length_of_smooth_data() -> None:
    generator = rng(5)
    x = generator.random((60, 1))
    y = np.sin(6 * x[:, 0]) + 0.05 * generator.normal(size=60)
    t = np.zeros(60)
    found = fit(x, t, standardised(y))
    assert found.log_likelihood > condition(KERNEL, x, t, standardised(y)).log_likelihood
    assert found.kernel.noise < 0.2
    assert 0.1 < found.kernel.length < 1.0


def test_twins_need_jitter_and_what_is_not_finite_is_an_error() -> None:
    x, t, y = np.zeros((3, 1)), np.zeros(3), np.zeros(3)
    still = Kernel(scale=1.0, length=1.0, noise=0.0, forgetting=0.0)
    assert np.isfinite(condition(still, x, t, y).mean(x, t)).all()
    with pytest.raises(ValueError, match=r"positive definite|infs or NaNs"):
        condition(still, x + np.nan, t, y)


def test_settings_in_flight_shrink_the_deviation_around_them_and_leave_the_mean() -> None:
    x, t, y = data(6)
    process = condition(KERNEL, x, t, y)
    pending = np.asarray([[0.5, 0.5]])
    seen = with_pending(process, pending, 6.0)
    there, now = np.asarray([[0.5, 0.52], [0.1, 0.9]]), np.full(2, 6.0)
    assert seen.mean(there, now) == pytest.approx(process.mean(there, now))
    assert seen.deviation(there, now)[0] < 0.6 * process.deviation(there, now)[0]
    assert with_pending(process, np.empty((0, 2)), 6.0) is process


def test_outputs_are_cut_off_at_two_deviations() -> None:
    found = standardised(np.asarray([0.0] * 20 + [1e6]))
    assert found.max() == 2.0
    assert standardised(np.ones(3)).tolist() == [0.0, 0.0, 0.0]
    assert confidence(1) == 0.2
    assert confidence(100) == pytest.approx(0.2 + math.log(40))


SPACE = Tree(fields={"rate": Real(low=1e-6, high=1.0, scale=Scale.LOG), "width": Real(low=0, high=10)})


def intervals(num: int, seed: int) -> tuple[Interval, ...]:
    generator = rng(seed)
    found = []
    for i in range(num):
        setting = SPACE.sample(generator)
        distance = (math.log10(setting["rate"]) + 3) ** 2 / 4 + (setting["width"] - 7) ** 2 / 9
        found.append(
            Interval(
                hyperparameters=setting,
                begin=i,
                end=i + 5,
                gain=5 * (1 - distance) + 0.05 * generator.normal(),
                time=i / 8,
            )
        )
    return tuple(found)


def test_with_enough_intervals_it_proposes_near_the_best_setting() -> None:
    rule = PB2(inner=Truncation(), space=SPACE, num_candidates=256)
    population = people([0.0, 1.0, 0.5], hyperparameters={"rate": 1e-5, "width": 1.0})
    population = Population(members=population.members, intervals=intervals(40, 1), time=5.0)
    change = rule.choose(population, "p0", rng(2))
    assert change is not None
    assert (change.parents, change.genes) == (("p1",), Genes.GIVEN)
    assert change.hyperparameters is not None
    SPACE.check(change.hyperparameters)
    assert abs(math.log10(change.hyperparameters["rate"]) + 3) < 1
    assert abs(change.hyperparameters["width"] - 7) < 2
    assert rule.choose(population, "p0", rng(2)) == change


def test_with_too_few_intervals_the_inner_rule_explores_and_whoever_stays_is_left_alone() -> None:
    rule = PB2(inner=Truncation(), space=SPACE)
    population = people([0.0, 1.0, 0.5], hyperparameters={"rate": 1e-5, "width": 1.0})
    change = rule.choose(population, "p0", rng())
    assert change is not None
    assert change.genes is Genes.EXPLORE
    assert rule.choose(Population(members=population.members, intervals=intervals(9, 1)), "p1", rng()) is None


def test_options_without_order_are_drawn_by_what_they_brought() -> None:
    space = Tree(
        fields={
            "opt": Choice(options=("bad", "good")),
            "beta": When(field="opt", is_in=("good",), domain=Real(low=0, high=1)),
        }
    )
    rows = tuple(
        Interval(hyperparameters=s, begin=0, end=1, gain=float(s["opt"] == "good"), time=float(i))
        for i, s in enumerate(space.sample(rng(i)) for i in range(200))
    )
    rule = PB2(inner=Truncation(), space=space, num_candidates=64, max_rows=60)
    drawn = [
        rule.propose(list(rows[-60:]), Population(members=(), intervals=rows, time=200.0), rng(s)) for s in range(12)
    ]
    assert sum(d["opt"] == "good" for d in drawn) > 6
    for d in drawn:
        space.check(d)


def test_the_options_bandit_prefers_what_pays_and_comes_back_to_what_begins_to() -> None:
    assert option_probabilities(3, []) == pytest.approx([1 / 3] * 3)
    pays = option_probabilities(2, [(0, 1.0), (1, 0.0)] * 100)
    assert pays[0] > 0.7
    assert sum(pays) == pytest.approx(1)
    assert min(pays) >= 0.05
    back = option_probabilities(2, [(0, 1.0), (1, 0.0)] * 100 + [(0, 0.0), (1, 1.0)] * 100)
    assert back[1] > 0.5
    with pytest.raises(ValueError, match=r"expected \[0, 1\]"):
        option_probabilities(2, [(0, 1.5)])
