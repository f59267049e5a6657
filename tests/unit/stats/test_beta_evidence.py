"""Beta evidence against scipy's own distribution, exact sums and sampling."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from coharness.stats.beta import (
    BetaEvidence,
    expected_variance,
    informative_probability,
    mean_of_cells,
    probability_greater,
    probability_mean_greater,
)


def seen(successes: float, failures: float) -> BetaEvidence:
    return BetaEvidence(successes=successes, failures=failures)


def exact_probability_greater(a: BetaEvidence, b: BetaEvidence) -> float:
    """P(p_a > p_b) for whole counts: a finite sum over the successes of a, in exact fractions."""
    total = Fraction(0)
    fa, sb, fb = int(a.failures), int(b.successes), int(b.failures)
    for i in range(int(a.successes) + 1):
        # B(sb+1+i, fb+1+fa+1) / ((fa+1+i) B(1+i, fa+1) B(sb+1, fb+1))
        top = (
            math.factorial(sb + i)
            * math.factorial(fa + fb + 1)
            * math.factorial(fa + 1 + i)
            * math.factorial(sb + fb + 1)
        )
        bottom = (
            math.factorial(sb + fb + fa + 2 + i)
            * math.factorial(i)
            * math.factorial(fa)
            * (math.factorial(sb) * math.factorial(fb) * (fa + 1 + i))
        )
        total += Fraction(top, bottom)
    return float(total)


@pytest.mark.parametrize("counts", [(0, 0), (8, 2), (0.3, 40.0), (500, 1)])
def test_moments_and_quantiles_are_those_of_the_posterior(counts: tuple[float, float]) -> None:
    evidence, posterior = seen(*counts), stats.beta(counts[0] + 1, counts[1] + 1)
    assert evidence.mean == pytest.approx(posterior.mean())
    assert evidence.variance == pytest.approx(posterior.var())
    assert evidence.lower(0.05) == pytest.approx(posterior.ppf(0.05))
    assert evidence.effective_n == sum(counts)


def test_the_miniature_of_decay_holds() -> None:
    evidence = BetaEvidence().observed(8, 2)
    assert evidence.mean == 9 / 12
    assert evidence.decayed(0.5) == seen(4, 1)
    assert evidence.decayed(0.5).mean == 5 / 7
    assert evidence.decayed(0.0).mean == 0.5


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (seen(0, 0), seen(0, 0)),
        (seen(5, 5), seen(6, 4)),
        (seen(3, 0), seen(100, 5)),
        (seen(0, 30), seen(1, 2)),
        (seen(250, 150), seen(230, 170)),
    ],
)
def test_probability_greater_is_the_exact_sum_for_whole_counts(a: BetaEvidence, b: BetaEvidence) -> None:
    assert probability_greater(a, b) == pytest.approx(exact_probability_greater(a, b), abs=1e-9)


@pytest.mark.parametrize(
    ("a", "b"), [(seen(0.3, 20.7), seen(0.1, 3)), (seen(0.05, 0.4), seen(0.2, 0.01)), (seen(1.5, 0), seen(0, 0.5))]
)
def test_probability_greater_is_the_integral_for_decayed_counts(a: BetaEvidence, b: BetaEvidence) -> None:
    first, second = stats.beta(a.alpha, a.beta), stats.beta(b.alpha, b.beta)
    expected, _ = integrate.quad(lambda p: first.pdf(p) * second.cdf(p), 0, 1, limit=500, epsabs=1e-11)
    assert probability_greater(a, b) == pytest.approx(expected, abs=1e-6)


def test_a_narrow_posterior_beats_the_uniform_prior_as_often_as_its_mean() -> None:
    narrow = seen(3e6, 1e6)
    assert probability_greater(narrow, seen(0, 0)) == pytest.approx(0.75, abs=1e-6)
    assert probability_greater(seen(0, 0), narrow) == pytest.approx(0.25, abs=1e-6)


def test_probability_greater_is_normal_for_huge_counts() -> None:
    a, b = seen(500_400, 500_000), seen(500_000, 500_000)
    expected = stats.norm.cdf((a.mean - b.mean) / math.sqrt(a.variance + b.variance))
    assert probability_greater(a, b) == pytest.approx(expected, abs=1e-4)


def test_probability_greater_is_certain_for_separated_posteriors() -> None:
    assert probability_greater(seen(1e7, 0), seen(0, 1e7)) == 1.0
    assert probability_greater(seen(0, 1e7), seen(1e7, 0)) == 0.0


def test_the_mean_of_cells_averages_means_and_adds_variances() -> None:
    cells = [seen(8, 2), seen(1, 5), seen(0, 0)]
    mean, variance = mean_of_cells(cells)
    draws = [np.random.default_rng(i).beta(cell.alpha, cell.beta, 200_000) for i, cell in enumerate(cells)]
    assert mean == pytest.approx(np.mean(draws), abs=0.002)
    assert variance == pytest.approx(np.mean(draws, axis=0).var(), rel=0.02)


def test_weights_are_a_mix_and_scale_out() -> None:
    cells = [seen(8, 2), seen(1, 5)]
    mean, variance = mean_of_cells(cells, [3.0, 1.0])
    assert mean == pytest.approx(0.75 * cells[0].mean + 0.25 * cells[1].mean)
    assert variance == pytest.approx(0.75**2 * cells[0].variance + 0.25**2 * cells[1].variance)
    assert mean_of_cells(cells, [1.0, 1.0]) == pytest.approx(mean_of_cells(cells))


def test_probability_mean_greater_agrees_with_sampling() -> None:
    cells_a, cells_b = [seen(20, 10), seen(5, 15)], [seen(15, 15), seen(6, 14)]
    rng = np.random.default_rng(7)

    def average(cells: list[BetaEvidence]) -> np.ndarray:
        draws: np.ndarray = np.mean([rng.beta(cell.alpha, cell.beta, 200_000) for cell in cells], axis=0)
        return draws

    sampled = (average(cells_a) > average(cells_b)).mean()
    assert probability_mean_greater(cells_a, cells_b) == pytest.approx(sampled, abs=0.01)
    assert probability_mean_greater(cells_a, cells_a) == 0.5


@pytest.mark.parametrize("group_size", [1, 2, 8, 64])
@pytest.mark.parametrize("evidence", [seen(0, 0), seen(12, 3), seen(0.2, 30)])
def test_informative_probability_is_the_posterior_expectation(evidence: BetaEvidence, group_size: int) -> None:
    posterior = stats.beta(evidence.alpha, evidence.beta)
    expected, _ = integrate.quad(
        lambda p: (1 - p**group_size - (1 - p) ** group_size) * posterior.pdf(p), 0, 1, limit=400
    )
    assert informative_probability(evidence, group_size) == pytest.approx(expected, abs=1e-6)


def test_a_group_of_two_is_informative_with_twice_the_expected_variance() -> None:
    assert informative_probability(seen(7, 2.5), 2) == pytest.approx(2 * expected_variance(seen(7, 2.5)))


def test_expected_variance_is_mean_less_second_moment() -> None:
    posterior = stats.beta(8, 3.5)
    assert expected_variance(seen(7, 2.5)) == pytest.approx(posterior.mean() - posterior.moment(2))


@pytest.mark.parametrize("count", [-1.0, math.nan, math.inf])
def test_counts_that_are_no_evidence_are_refused(count: float) -> None:
    with pytest.raises(ValueError, match=r"BetaEvidence\.failures"):
        seen(1.0, count)
    with pytest.raises(ValueError, match=r"BetaEvidence\.successes"):
        seen(5.0, 5.0).observed(count, 0.0)


def test_other_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="decay factor"):
        seen(1, 1).decayed(1.1)
    with pytest.raises(ValueError, match="quantile"):
        seen(1, 1).lower(1.5)
    with pytest.raises(ValueError, match="group_size"):
        informative_probability(seen(1, 1), 0)
    with pytest.raises(ValueError, match="no cell"):
        mean_of_cells([])
    with pytest.raises(ValueError, match="1 against 2"):
        probability_mean_greater([seen(1, 1)], [seen(1, 1)] * 2)
    for weights in ([1.0], [0.0, 0.0], [2.0, -1.0]):
        with pytest.raises(ValueError, match="weights"):
            mean_of_cells([seen(1, 1)] * 2, weights)
