"""The run-level budget: its arithmetic, and the false discovery rate of simulated runs."""

import math

import numpy as np
import pytest

from coharness.stats.online_fdr import ELond, gamma
from coharness.stats.sequential import mcnemar_log_evalue

NUM_RUNS = 1500
NUM_TESTS = 20
LOOKS = 12  # of 32 pairs each


def log_evalues(is_real: np.ndarray, seed: int) -> np.ndarray:
    """Log e-values [runs, tests, looks] of gates at discordance .2; real effects are +.10."""
    rng = np.random.default_rng(seed)
    null = rng.multinomial(32, [0.10, 0.10, 0.80], size=(*is_real.shape, LOOKS))
    real = rng.multinomial(32, [0.15, 0.05, 0.80], size=(*is_real.shape, LOOKS))
    pairs = np.where(is_real[..., None, None], real, null).cumsum(axis=2)[..., :2]
    keys, inverse = np.unique(pairs[..., 0] * 10_000 + pairs[..., 1], return_inverse=True)
    values = np.array([mcnemar_log_evalue(*divmod(int(key), 10_000)) for key in keys])
    return values[inverse].reshape(pairs.shape[:3])


def rejections(log_e: np.ndarray, budget: ELond, num_concurrent: int) -> np.ndarray:
    """Which tests [runs, tests] are rejected when so many run at a time, R being read at every look.

    A wave of tests moves look by look; within a look they end in turn, so the later see the rejections of the earlier.
    """
    rejected = np.zeros(log_e.shape[:2], dtype=bool)
    levels = np.array([[budget.level(k, r) for r in range(NUM_TESTS)] for k in range(1, NUM_TESTS + 1)])
    for wave in range(0, NUM_TESTS, num_concurrent):
        for look in range(LOOKS):
            for test in range(wave, min(wave + num_concurrent, NUM_TESTS)):
                num_others = rejected.sum(axis=1) - rejected[:, test]
                rejected[:, test] |= log_e[:, test, look] >= -np.log(levels[test, num_others])
    return rejected


def false_discovery_proportions(rejected: np.ndarray, is_real: np.ndarray) -> np.ndarray:
    proportions: np.ndarray = (rejected & ~is_real).sum(axis=1) / np.maximum(1, rejected.sum(axis=1))
    return proportions


def upper_limit(alpha: float, proportions: np.ndarray) -> float:
    return alpha + 3 * float(proportions.std()) / math.sqrt(NUM_RUNS)


@pytest.mark.parametrize("num_concurrent", [1, 5])
def test_runs_without_any_real_effect_keep_the_rate(num_concurrent: int) -> None:
    is_real = np.zeros((NUM_RUNS, NUM_TESTS), dtype=bool)
    proportions = false_discovery_proportions(
        rejections(log_evalues(is_real, seed=1), ELond(alpha=0.1), num_concurrent), is_real
    )
    assert 0.0 < proportions.mean() <= upper_limit(0.1, proportions)


@pytest.mark.parametrize("num_concurrent", [1, 5])
def test_mixed_runs_keep_the_rate_and_find_real_effects(num_concurrent: int) -> None:
    is_real = np.random.default_rng(2).random((NUM_RUNS, NUM_TESTS)) < 0.5
    rejected = rejections(log_evalues(is_real, seed=3), ELond(alpha=0.1), num_concurrent)
    proportions = false_discovery_proportions(rejected, is_real)
    assert proportions.mean() <= upper_limit(0.1, proportions)
    assert (rejected & is_real).sum() / is_real.sum() > 0.3


def test_without_the_budget_the_same_null_runs_break_the_rate() -> None:
    # The simulation must be able to fail: every test at alpha itself is a family-wise error well above it.
    log_e = log_evalues(np.zeros((NUM_RUNS, NUM_TESTS), dtype=bool), seed=1)
    assert (log_e.max(axis=2) >= math.log(10)).any(axis=1).mean() > 0.3


def test_the_shares_sum_to_one() -> None:
    total = sum(gamma(k) for k in range(1, 20_001))
    assert total < 1.0
    assert total == pytest.approx(1.0, abs=1e-4)


def test_the_miniature_of_the_levels_holds() -> None:
    budget = ELond(alpha=0.1)
    assert 1 / budget.level(1, 0) == pytest.approx(16.4, abs=0.1)
    assert 1 / budget.level(2, 1) == pytest.approx(32.9, abs=0.1)
    assert 1 / budget.level(2, 0) == pytest.approx(65.8, abs=0.1)


def test_a_level_is_alpha_times_share_times_rejections_plus_one() -> None:
    assert ELond(alpha=0.05).level(7, 3) == pytest.approx(0.05 * 6 / (math.pi**2 * 49) * 4)


def test_a_level_never_passes_one() -> None:
    assert ELond(alpha=0.1).level(1, 1000) == 1.0


@pytest.mark.parametrize(("k", "num_rejections"), [(0, 0), (-3, 0), (1, -1)])
def test_impossible_numbers_are_refused(k: int, num_rejections: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        ELond(alpha=0.1).level(k, num_rejections)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_an_alpha_that_is_no_rate_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"ELond\.alpha"):
        ELond(alpha=alpha)
