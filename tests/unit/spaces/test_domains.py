"""Rules of single kinds of domain: no drift, no sticking, honest priors."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from coharness.spaces.discrete import Choice, Ordinal, Simplex
from coharness.spaces.domain import Domain, Move, Noise
from coharness.spaces.ranges import Prior, Real, Whole
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree, When
from tests.unit.spaces.kinds import TREE


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("scale", list(Scale))
def test_exploring_alone_keeps_reals_uniform_in_the_transformed_range(scale: Scale, noise: Noise) -> None:
    domain = Real(low=0.01, high=0.9, scale=scale)
    generator = rng(11)
    values = [domain.sample(generator) for _ in range(2_000)]
    for _ in range(10):
        values = [domain.perturb(value, generator, Move(noise=noise, resample=0)) for value in values]
    shares = [domain.features(value)[0] for value in values]
    assert stats.kstest(shares, "uniform").pvalue > 1e-3


def test_exploring_alone_keeps_shares_uniform_on_the_simplex() -> None:
    domain = Simplex(parts=4)
    generator = rng(5)
    values = [domain.sample(generator) for _ in range(2_000)]
    for _ in range(10):
        values = [domain.perturb(value, generator, Move(step=0.3)) for value in values]
    for part in range(4):
        # Each part of a uniform point on the simplex is Beta(1, parts - 1), whatever its place in the list.
        assert stats.kstest([value[part] for value in values], "beta", args=(1, 3)).pvalue > 1e-3


def test_a_default_step_in_a_log_range_is_a_factor_of_a_quarter() -> None:
    domain = Real(low=1e-6, high=1.0, scale=Scale.LOG)
    moved = {round(domain.perturb(1e-3, rng(seed), Move()) / 1e-3, 9) for seed in range(50)}
    assert moved == {1.25, 0.8}


@pytest.mark.parametrize(
    ("domain", "value"),
    [
        (Whole(low=1, high=64), 2),
        (Whole(low=1, high=64, scale=Scale.LOG), 2),
        (Whole(low=0, high=1), 0),
        (Whole(low=0, high=9), 9),
        (Ordinal(levels=("s", "m", "l")), "s"),
        (Ordinal(levels=("s", "m", "l")), "m"),
    ],
)
@pytest.mark.parametrize("step", [1e-6, 0.1, 0.5])
def test_a_whole_number_or_level_never_sticks(domain: Domain, value: object, step: float) -> None:
    for seed in range(60):
        assert domain.perturb(value, rng(seed), Move(step=step)) != value


def test_a_whole_number_is_rounded_by_chance_without_bias() -> None:
    # From 50 in 0..100 a step of .023 is 2.3: two thirds of the moves up go to 52, one third to 53.
    domain = Whole(low=0, high=100)
    moves = [domain.perturb(50, rng(seed), Move(step=0.023)) - 50 for seed in range(4_000)]
    counts = Counter(moves)
    assert set(counts) == {-3, -2, 2, 3}
    assert abs(np.mean(moves)) < 5 * np.std(moves) / math.sqrt(len(moves))
    assert np.mean(np.abs(moves)) == pytest.approx(2.3, abs=0.04)


def test_the_ends_of_a_whole_range_carry_half_of_an_inner_numbers_weight_under_forced_moves() -> None:
    domain = Whole(low=0, high=4)
    generator = rng(2)
    value, counts = 2, Counter[int]()
    for _ in range(40_000):
        value = domain.perturb(value, generator, Move(step=0.05))
        counts[value] += 1
    shares = [counts[number] / 40_000 for number in range(5)]
    assert shares == pytest.approx([1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8], abs=0.012)


def test_a_choice_switches_as_often_as_asked_and_to_each_other_option_alike() -> None:
    domain = Choice(options=("a", "b", "c"))
    generator = rng(4)
    counts = Counter(domain.perturb("b", generator, Move(switch=0.3)) for _ in range(6_000))
    assert stats.chisquare([counts["a"], counts["b"], counts["c"]], [900, 4200, 900]).pvalue > 1e-3


def test_choices_follow_their_prior() -> None:
    domain = Choice(options=("a", "b", "c"), weights=(1, 0, 3))
    generator = rng(4)
    counts = Counter(domain.sample(generator) for _ in range(4_000))
    assert counts["b"] == 0
    assert stats.chisquare([counts["a"], counts["c"]], [1_000, 3_000]).pvalue > 1e-3


def test_a_normal_prior_is_the_normal_cut_off_at_the_bounds() -> None:
    domain = Real(low=1e-4, high=1e-1, scale=Scale.LOG, prior=Prior(center=1e-2, spread=1.5))
    generator = rng(9)
    logs = [math.log(domain.sample(generator)) for _ in range(3_000)]
    low, high = (math.log(1e-4) - math.log(1e-2)) / 1.5, (math.log(1e-1) - math.log(1e-2)) / 1.5
    assert stats.kstest(logs, stats.truncnorm(low, high, loc=math.log(1e-2), scale=1.5).cdf).pvalue > 1e-3


def test_whole_numbers_are_drawn_alike_or_by_their_logarithm() -> None:
    generator = rng(3)
    counts = Counter(Whole(low=1, high=4).sample(generator) for _ in range(4_000))
    assert stats.chisquare([counts[n] for n in (1, 2, 3, 4)]).pvalue > 1e-3
    counts = Counter(Whole(low=1, high=4, scale=Scale.LOG).sample(generator) for _ in range(4_000))
    weights = np.diff(np.log([0.5, 1.5, 2.5, 3.5, 4.5]))
    assert stats.chisquare([counts[n] for n in (1, 2, 3, 4)], 4_000 * weights / weights.sum()).pvalue > 1e-3


def test_blends_are_means_in_the_transformed_space() -> None:
    assert Real(low=1e-4, high=1, scale=Scale.LOG).blend([1e-4, 1e-2], [1, 1]) == pytest.approx(1e-3)
    assert Whole(low=0, high=10).blend([2, 8], [3, 1]) == 4
    assert Ordinal(levels=("a", "b", "c")).blend(["a", "c"], [1, 1]) == "b"
    assert Choice(options=("a", "b")).blend(["a", "b"], [1, 1]) == "a"
    assert Simplex(parts=2).blend([[0.0, 1.0], [1.0, 0.0]], [1, 3]) == pytest.approx([0.75, 0.25])


def test_a_conditional_field_comes_and_goes_with_its_condition() -> None:
    value = {"rate": 1e-3, "optimizer": "adam", "model": {"layers": 2, "mix": [0.2, 0.3, 0.5]}}
    TREE.check(value)
    with pytest.raises(ValueError, match="momentum missing"):
        TREE.check({**value, "optimizer": "sgd"})
    with pytest.raises(ValueError, match="momentum not expected"):
        TREE.check({**value, "momentum": 0.5})
    with pytest.raises(ValueError, match=r"model: mix: .*sum to 1"):
        TREE.check({**value, "model": {"layers": 2, "mix": [0.2, 0.3, 0.6]}})
    seen = [TREE.perturb(value, rng(seed), Move(switch=1.0)) for seed in range(40)]
    assert {"sgd", "lion"} <= {moved["optimizer"] for moved in seen}
    assert all(("momentum" in moved) == (moved["optimizer"] in ("sgd", "lion")) for moved in seen)


def test_the_leaves_stand_in_the_order_of_the_coordinates() -> None:
    assert [path for path, _ in TREE.leaves()] == [
        "rate", "optimizer", "momentum", "model.layers", "model.mix", "model.deep",
    ]  # fmt: skip
    assert sum(domain.num_features for _, domain in TREE.leaves()) == TREE.num_features == 1 + 0 + 1 + 1 + 2 + 1


def test_truth_values_and_numbers_are_different_options() -> None:
    domain = Choice(options=(1, True, 0))
    assert domain.clip(True) is True
    with pytest.raises(ValueError, match="none of the options"):
        domain.check(False)


def refused(make: object, match: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Real(low=2, high=1), "low to a finite high"),
        (lambda: Real(low=0, high=1, scale=Scale.LOG), "above 0"),
        (lambda: Real(low=0, high=0.5, scale=Scale.LOGIT), "inside"),
        (lambda: Real(low=0, high=1, prior=Prior(center=2, spread=1)), "prior's center"),
        (lambda: Prior(center=0, spread=0), "spread above 0"),
        (lambda: Whole(low=1, high=2, scale=Scale.LOGIT), "linear or log"),
        (lambda: Ordinal(levels=()), "distinct"),
        (lambda: Choice(options=("a", "a")), "distinct"),
        (lambda: Choice(options=("a", "b"), weights=(1.0,)), "one weight"),
        (lambda: Choice(options=("a", "b"), weights=(0.0, 0.0)), "not all 0"),
        (lambda: Simplex(parts=1), "2 parts"),
        (lambda: Tree(fields={}), "at least one"),
        (lambda: Tree(fields={"a": When(field="b", is_in=(1,), domain=Real(low=0, high=1))}), "stands before it"),
        (
            lambda: Tree(
                fields={
                    "b": Choice(options=(1, 2)),
                    "a": When(field="b", is_in=(3,), domain=Real(low=0, high=1)),
                }
            ),
            "never is",
        ),
        (lambda: Move(step=-1), "0 or more"),
        (lambda: Move(switch=2), "probability"),
        (lambda: Real(low=0, high=1).check(True), "is not a number"),
        (lambda: Whole(low=0, high=3).check(1.5), "whole number"),
        (lambda: Real(low=0, high=1).clip(math.nan), "finite"),
        (lambda: Real(low=0, high=1).blend([0.5], []), "one weight"),
        (lambda: Real(low=0, high=1).blend([0.5, 2.0], [1, 1]), "not a number in"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, match: str) -> None:
    refused(make, match)
