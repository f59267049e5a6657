"""Estimates, intervals and tests of an ablation against scipy, exhaustive counts and simulated truth."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coharness.studies.ablation_plan import Contrast, ContrastKind, Design, Factor, make_plan
from coharness.studies.ablation_statistics import (
    Effect,
    Verdict,
    arm_scores,
    detectable,
    effects,
    iqm_interval,
    sign_flip_p,
    winner,
)
from coharness.studies.ablation_summary import spread_of


def contrast(a: str, b: str) -> Contrast:
    return Contrast(name=f"{a} − {b}", kind=ContrastKind.EFFECT, weights={a: 1.0, b: -1.0})


def one(scores: dict[str, dict[str, list[float]]], a: str = "a", b: str = "b") -> Effect:
    return effects([contrast(a, b)], scores)[0]


RNG = np.random.default_rng(7)
A = RNG.normal(0.6, 0.05, 6).tolist()
B = RNG.normal(0.5, 0.05, 6).tolist()
SCORES = {"a": {"all": A}, "b": {"all": B}}


def test_with_one_block_it_is_the_paired_t_test_of_scipy() -> None:
    found = one(SCORES)
    oracle = stats.ttest_rel(A, B)
    interval = oracle.confidence_interval(0.95)
    assert found.value == pytest.approx(np.mean(A) - np.mean(B))
    assert found.p == pytest.approx(oracle.pvalue)
    assert found.student is not None
    assert (found.student.low, found.student.high) == pytest.approx((interval.low, interval.high))


def test_with_two_blocks_it_is_the_contrast_of_a_linear_model_with_a_mean_for_each_block() -> None:
    blocks = {"x": RNG.normal(0.2, 0.1, 5), "y": RNG.normal(-0.05, 0.1, 5)}
    zero = {name: [0.0] * 5 for name in blocks}
    found = one({"a": {name: v.tolist() for name, v in blocks.items()}, "b": zero})
    y = np.concatenate(list(blocks.values()))
    design = np.kron(np.eye(2), np.ones((5, 1)))
    beta, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    weight = np.array([0.5, 0.5])
    error = np.sqrt(residual[0] / 8 * weight @ np.linalg.inv(design.T @ design) @ weight)
    assert found.value == pytest.approx(weight @ beta)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(weight @ beta) / error, 8))


def test_sign_flips_are_counted_as_scipy_counts_them() -> None:
    differences = np.array(A) - np.array(B) - 0.06
    oracle = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_p([differences]) == pytest.approx(oracle.pvalue)


def test_five_pairs_that_all_agree_have_two_flips_of_thirty_two() -> None:
    assert sign_flip_p([[0.1, 0.2, 0.3, 0.1, 0.05]]) == pytest.approx(2 / 32)


def test_many_pairs_are_drawn_and_agree_with_the_normal_approximation() -> None:
    differences = np.random.default_rng(1).normal(0.3, 1.0, 40)
    z = abs(differences.sum()) / np.sqrt((differences**2).sum())
    assert sign_flip_p([differences]) == pytest.approx(2 * stats.norm.sf(z), abs=0.015)


def test_p_values_are_corrected_by_holm_over_all_contrasts() -> None:
    scores = {**SCORES, "c": {"all": [x + d for x, d in zip(B, (0.02, 0.0, 0.03, 0.01, 0.02, -0.01), strict=True)]}}
    pairs = [contrast("a", "b"), contrast("c", "b"), contrast("a", "c")]
    found = effects(pairs, scores)
    raw = [float(stats.ttest_rel(scores[x]["all"], scores[y]["all"]).pvalue) for x, y in ("ab", "cb", "ac")]
    expected, running = {}, 0.0
    for rank, index in enumerate(np.argsort(raw)):
        running = max(running, (3 - rank) * raw[index])
        expected[int(index)] = min(1.0, running)
    assert [effect.p_holm for effect in found] == pytest.approx([expected[i] for i in range(3)])


def test_the_iqm_is_the_trimmed_mean_of_scipy() -> None:
    values = RNG.normal(size=20)
    arm = arm_scores({"a": {"x": values[:10].tolist(), "y": values[10:].tolist()}})[0]
    assert arm.iqm == pytest.approx(stats.trim_mean(values, 0.25))
    assert (arm.low, arm.high, arm.num) == (values.min(), values.max(), 20)


def test_the_bootstrap_of_the_iqm_is_that_of_all_resamples() -> None:
    blocks = {"x": np.array([0.1, 0.5, 0.9]), "y": np.array([0.2, 0.3, 0.8])}
    exact = [
        stats.trim_mean(np.concatenate([blocks["x"][list(i)], blocks["y"][list(j)]]), 0.25)
        for i in product(range(3), repeat=3)
        for j in product(range(3), repeat=3)
    ]
    interval = iqm_interval(blocks, seed=0, level=0.8)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(exact, (0.1, 0.9))), abs=0.03)


def test_seeds_are_drawn_inside_their_block_so_that_what_blocks_differ_by_is_no_noise() -> None:
    far = {"easy": [0.9, 0.91, 0.92], "hard": [0.1, 0.11, 0.12]}
    arm = arm_scores({"a": far})[0]
    assert arm.interval is not None
    assert arm.interval.high - arm.interval.low < 0.03
    assert arm.sd == pytest.approx(0.01)


@pytest.mark.parametrize(("num_seeds", "num_blocks", "num_contrasts"), [(5, 1, 1), (5, 1, 7), (10, 3, 4)])
def test_the_minimum_detectable_effect_has_the_power_it_names(
    num_seeds: int, num_blocks: int, num_contrasts: int
) -> None:
    effect = detectable(0.05, num_seeds, num_blocks, num_contrasts, alpha=0.05, power=0.8)
    df = num_blocks * (num_seeds - 1)
    critical = stats.t.isf(0.05 / (2 * num_contrasts), df)
    noncentrality = effect / 0.05 * np.sqrt(num_blocks * num_seeds)
    assert stats.nct.sf(critical, df, noncentrality) == pytest.approx(0.8, abs=1e-6)


def test_of_arms_that_are_equal_hardly_ever_anything_is_said() -> None:
    rng = np.random.default_rng(3)
    names = ["full", *(f"off{i}" for i in range(5))]
    said = won = 0
    for _ in range(200):
        scores = {name: {"all": rng.normal(0.5, 0.05, 5).tolist()} for name in names}
        found = effects([contrast("full", name) for name in names[1:]], scores)
        said += any(effect.verdict is not Verdict.UNDECIDED for effect in found)
        won += winner(scores) is not None
    # At most .05 in truth; .09 is beyond two standard errors of 200 draws.
    assert said / 200 <= 0.09
    assert won / 200 <= 0.09


def test_a_large_difference_is_said_with_its_sign_and_wins() -> None:
    rng = np.random.default_rng(4)
    scores = {
        name: {"all": (mean + rng.normal(0, 0.01, 5)).tolist()} for name, mean in (("a", 0.8), ("b", 0.5), ("c", 0.4))
    }
    found = effects([contrast("a", "b"), contrast("c", "b")], scores)
    assert [effect.verdict for effect in found] == [Verdict.HELPS, Verdict.HARMS]
    assert winner(scores) == "a"


def test_an_arm_that_beats_all_but_one_is_no_winner() -> None:
    rng = np.random.default_rng(4)
    scores = {
        name: {"all": (mean + rng.normal(0, 0.02, 5)).tolist()} for name, mean in (("a", 0.801), ("b", 0.8), ("c", 0.4))
    }
    assert winner(scores) is None


def test_with_one_seed_nothing_is_said() -> None:
    found = one({"a": {"all": [0.9]}, "b": {"all": [0.1]}})
    assert (found.value, found.verdict, found.student, found.p_holm) == (
        pytest.approx(0.8),
        Verdict.UNDECIDED,
        None,
        None,
    )
    assert winner({"a": {"all": [0.9]}, "b": {"all": [0.1]}}) is None


def test_a_few_seeds_that_all_differ_by_the_same_amount_are_not_enough() -> None:
    def differ_by_a_quarter(num_seeds: int) -> Effect:
        return one({"a": {"all": [0.75] * num_seeds}, "b": {"all": [0.5] * num_seeds}})

    few, many = differ_by_a_quarter(5), differ_by_a_quarter(10)
    assert (few.p, few.verdict) == (pytest.approx(2 / 32), Verdict.UNDECIDED)
    assert (many.p, many.verdict) == (pytest.approx(2 / 1024), Verdict.HELPS)


def test_equal_scores_are_no_difference() -> None:
    found = one({"a": {"all": A}, "b": {"all": A}})
    assert (found.value, found.p, found.verdict) == (0.0, 1.0, Verdict.UNDECIDED)


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-3, 3), scale=st.floats(0.1, 10), seed=st.integers(0, 99))
def test_verdicts_and_p_values_do_not_depend_on_unit_and_origin(shift: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.2, 0.1, 5), rng.normal(0.0, 0.1, 5)
    first = one({"a": {"all": a.tolist()}, "b": {"all": b.tolist()}})
    second = one({"a": {"all": (shift + scale * a).tolist()}, "b": {"all": (shift + scale * b).tolist()}})
    assert second.p == pytest.approx(first.p, rel=1e-6)
    assert second.value == pytest.approx(scale * first.value, abs=1e-9)
    assert second.verdict is first.verdict


def test_arms_with_other_seeds_or_without_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="the same seeds"):
        one({"a": {"all": A}, "b": {"all": B[:3]}})
    with pytest.raises(ValueError, match="needs the arms b"):
        one({"a": {"all": A}})


def test_the_spread_of_finished_arms_is_that_of_a_difference_of_two() -> None:
    rng = np.random.default_rng(5)
    plan = make_plan(
        [Factor(name=name, levels={"with": (), "without": (f"{name}=0",)}) for name in "abc"], Design.FULL, controls=()
    )
    scores = {arm.name: {"all": rng.normal(0.5, 0.1, 2_000).tolist()} for arm in plan.arms}
    assert spread_of(plan, scores) == pytest.approx(0.1 * np.sqrt(2), rel=0.03)
    assert spread_of(plan, {arm: {"all": [0.5] * 5} for arm in scores}) is None
    assert spread_of(plan, {arm: {"all": [0.5]} for arm in scores}) is None
