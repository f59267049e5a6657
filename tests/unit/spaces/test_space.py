"""Rules of the typed spaces: bounds, symmetry, no drift."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coharness.spaces.space import Categorical, Float, Int, Scale, Space


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    kind = draw(st.sampled_from(["linear", "log", "logit", "int", "categorical"]))
    if kind == "categorical":
        return Categorical(choices=tuple(draw(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6, unique=True))))
    if kind == "int":
        low, high = sorted(draw(st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000))))
        return Int(low=low, high=high)
    bounds = {"linear": (-1e6, 1e6), "log": (1e-9, 1e6), "logit": (1e-6, 1 - 1e-6)}[kind]
    low_f, high_f = sorted(draw(st.tuples(st.floats(*bounds), st.floats(*bounds))))
    return Float(low=low_f, high=high_f, scale=Scale(kind))


@given(spaces(), st.integers(0, 2**32), st.floats(0, 10))
def test_every_value_a_space_hands_out_is_one_of_its_own(space: Space, seed: int, step: float) -> None:
    generator = rng(seed)
    value = space.sample(generator)
    space.check(value)
    moved = space.perturb(value, generator, step)
    space.check(moved)
    assert space.clip(moved) == moved


@given(spaces(), st.integers(0, 2**32), st.floats(0, 10))
def test_a_value_is_a_pure_function_of_the_generator(space: Space, seed: int, step: float) -> None:
    value = space.sample(rng(seed))
    assert value == space.sample(rng(seed))
    assert space.perturb(value, rng(seed), step) == space.perturb(value, rng(seed), step)


@given(spaces(), st.floats(-1e7, 1e7))
def test_clip_lands_in_the_space_and_keeps_what_is_in_it(space: Space, value: float) -> None:
    clipped = space.clip(value)
    space.check(clipped)
    assert space.clip(clipped) == clipped


@given(spaces(), st.integers(0, 2**32))
def test_a_step_of_zero_stays(space: Space, seed: int) -> None:
    value = space.sample(rng(seed))
    assert space.perturb(value, rng(seed), 0.0) == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("step", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("scale", list(Scale))
def test_exploring_alone_keeps_values_uniform_in_the_transformed_range(scale: Scale, step: float) -> None:
    space = Float(low=0.01, high=0.9, scale=scale)
    transform = {"linear": lambda x: x, "log": np.log, "logit": lambda x: np.log(x / (1 - x))}[scale.value]
    generator = rng(7)
    values = [space.sample(generator) for _ in range(2_000)]
    for _ in range(10):
        values = [space.perturb(value, generator, step) for value in values]
    low, high = transform(np.float64(0.01)), transform(np.float64(0.9))
    shares = (transform(np.asarray(values)) - low) / (high - low)
    assert stats.kstest(shares, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("space", [Int(low=3, high=9), Categorical(choices=(1.0, 2.0, 5.0, 11.0))])
def test_moves_between_two_values_are_as_likely_either_way(space: Space) -> None:
    generator = rng(3)
    values = [float(v) for v in range(3, 10)] if isinstance(space, Int) else [1.0, 2.0, 5.0, 11.0]
    num = 4_000
    moves = {a: [space.perturb(a, generator, 0.2) for _ in range(num)] for a in values}
    counts = np.array([[moves[a].count(b) for b in values] for a in values])
    difference = np.abs(counts - counts.T)
    assert np.all(difference <= 5 * np.sqrt(counts + counts.T + 1))
    assert np.all(counts.sum(axis=0) < num * 1.15)


def test_steps_in_a_log_range_are_factors() -> None:
    space = Float(low=1e-4, high=1e-2, scale=Scale.LOG)
    small = [space.perturb(2e-4, rng(s), 0.02) / 2e-4 for s in range(50)]
    large = [space.perturb(5e-3, rng(s), 0.02) / 5e-3 for s in range(50)]
    assert small == pytest.approx(large, rel=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Float(low=2, high=1),
        lambda: Float(low=0, high=1, scale=Scale.LOG),
        lambda: Float(low=0.1, high=1, scale=Scale.LOGIT),
        lambda: Float(low=math.nan, high=1),
        lambda: Int(low=2, high=1),
        lambda: Categorical(choices=()),
        lambda: Categorical(choices=(1.0, 1.0)),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="got"):
        make()


@pytest.mark.parametrize("space", [Float(low=0, high=1), Int(low=0, high=3), Categorical(choices=(0.0, 1.0))])
@pytest.mark.parametrize("value", [math.nan, math.inf, 17.0, 0.5 + 9])
def test_a_value_from_outside_is_refused(space: Space, value: float) -> None:
    with pytest.raises(ValueError, match=r"is not|none of"):
        space.check(value)
    with pytest.raises(ValueError, match=r"is not|none of"):
        space.perturb(value, rng(), 0.1)
