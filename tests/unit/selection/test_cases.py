"""Rules that read single cases: epsilon-lexicase and resource sharing."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from coharness.evolution.selection.contract import Population
from coharness.evolution.selection.lexicase import Epsilons, Lexicase, draw, passing
from coharness.evolution.selection.niches import Niches, complementary_gains, shared_fitness
from tests.unit.selection.people import person, rng


def exact(means: np.ndarray, epsilon: np.ndarray, left: tuple[int, ...], cases: tuple[int, ...]) -> dict[int, float]:
    """Selection probabilities by recursion over all orders of the cases (La Cava et al., 2019)."""
    if len(left) == 1 or not cases:
        return {i: 1 / len(left) for i in left}
    found = Counter[int]()
    for case in cases:
        best = max(means[i, case] for i in left)
        kept = tuple(i for i in left if means[i, case] >= best - epsilon[case])
        for i, p in exact(means, epsilon, kept, tuple(c for c in cases if c != case)).items():
            found[i] += p / len(cases)  # type: ignore[assignment]
    return dict(found)


@pytest.mark.parametrize("seed", range(4))
def test_lexicase_draws_with_the_exact_probabilities(seed: int) -> None:
    generator = rng(seed)
    means = generator.integers(0, 4, (5, 4)).astype(float)
    scores = Epsilons(means=means, epsilon=np.full(4, 0.5 if seed % 2 else 1.0))
    expected = exact(means, scores.epsilon, tuple(range(5)), tuple(range(4)))
    counts = Counter(draw(scores, generator) for _ in range(20_000))
    assert set(counts) <= set(expected)
    observed = [counts[i] for i in expected]
    assert stats.chisquare(observed, [20_000 * p for p in expected.values()]).pvalue > 1e-3


def test_epsilon_is_the_median_absolute_deviation_or_the_noise_of_the_best() -> None:
    means = np.asarray([[0.0, 0.0], [1.0, 0.1], [5.0, 0.2]])
    errors = np.asarray([[9.0, 9.0], [9.0, 9.0], [0.1, 0.5]])
    found = passing(means, errors, z=1.0).epsilon
    assert found.tolist() == [stats.median_abs_deviation(means[:, 0]), 0.5]


def test_lexicase_keeps_a_specialist_that_truncation_would_lose() -> None:
    cases = [
        (1.0, 1.0, 1.0, 0.0),
        (1.0, 0.9, 1.0, 0.0),
        (0.9, 1.0, 1.0, 0.0),
        (0.0, 0.0, 0.0, 1.0),
        (0.5, 0.5, 0.5, 0.0),
    ]
    members = tuple(person(f"p{i}", float(np.mean(c)), cases=c) for i, c in enumerate(cases))
    population = Population(members=members)
    rule = Lexicase(orders=5)
    lost = {
        name: sum(rule.choose(population, name, rng(s)) is not None for s in range(200)) for name in ("p0", "p3", "p4")
    }
    # p3 wins the orders that begin with the last case, a quarter of them; five orders miss it with .75 ** 5 = .24.
    assert lost["p3"] / 200 == pytest.approx(0.75**5, abs=0.1)
    assert lost["p4"] == 200
    assert not any(Lexicase().choose(population, "p3", rng(s)) for s in range(200))
    tied = Population(members=tuple(person(f"p{i}", 0.5, cases=(1.0, 0.0)) for i in range(5)))
    assert not any(rule.choose(tied, "p0", rng(s)) for s in range(50))


def test_shared_fitness_follows_its_formula() -> None:
    scores = np.asarray([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.5]])
    # z = (2, 1, .5): what two share feeds each half.
    assert shared_fitness(scores, 1.0).tolist() == [1.5, 0.5, 1.0]
    assert shared_fitness(scores, 0.0).tolist() == [2.0, 1.0, 0.5]
    assert complementary_gains(scores, 1.0, 1).tolist() == [1.0, 0.0, 1.0]
    assert shared_fitness(np.zeros((2, 2)), 1.0).tolist() == [0.0, 0.0]


def test_the_one_that_the_resources_feed_least_gives_way_to_a_child_of_two_that_complement() -> None:
    cases = [(1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 1.0), (0.2, 0.1, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)]
    population = Population(members=tuple(person(f"p{i}", float(np.mean(c)), cases=c) for i, c in enumerate(cases)))
    rule = Niches(merge=True)
    assert all(rule.choose(population, name, rng(s)) is None for name in ("p0", "p1", "p3") for s in range(20))
    pairs = Counter(rule.choose(population, "p2", rng(s)).parents for s in range(300))  # type: ignore[union-attr]
    assert max(pairs, key=lambda pair: pairs[pair]) in {("p1", "p0"), ("p0", "p1")}
    assert all("p2" not in pair for pair in pairs)
    single = Niches().choose(population, "p2", rng())
    assert single is not None
    assert len(single.parents) == 1


def test_cases_that_do_not_fit_are_refused() -> None:
    ragged = Population(members=(person("p0", 1, cases=(1.0,)), person("p1", 1, cases=(1.0, 2.0))))
    with pytest.raises(ValueError, match="cases: members have"):
        Lexicase().choose(ragged, "p0", rng())
    negative = Population(members=(person("p0", 1, cases=(-1.0,)), person("p1", 1, cases=(1.0,))))
    with pytest.raises(ValueError, match="shift them first"):
        Niches().choose(negative, "p0", rng())
