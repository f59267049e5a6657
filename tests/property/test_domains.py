"""What every kind of domain keeps, whatever its parameters."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.spaces.domain import Domain, Move, Noise, adapt_step
from coharness.spaces.tree import flat
from tests.unit.spaces.kinds import TREE, domains

moves = st.builds(
    Move, step=st.floats(0, 5), noise=st.sampled_from(Noise), switch=st.floats(0, 1), resample=st.floats(0, 1)
)
seeds = st.integers(0, 2**32)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(domains() | st.just(TREE), seeds, moves)
def test_every_value_handed_out_is_of_the_domain_and_survives_json(domain: Domain, seed: int, move: Move) -> None:
    generator = rng(seed)
    value = domain.sample(generator)
    for _ in range(3):
        domain.check(value)
        assert json.loads(json.dumps(value)) == value
        domain.check(domain.clip(value))
        value = domain.perturb(value, generator, move)


@given(domains() | st.just(TREE), seeds, moves)
def test_values_are_a_pure_function_of_the_generator(domain: Domain, seed: int, move: Move) -> None:
    value = domain.sample(rng(seed))
    assert value == domain.sample(rng(seed))
    assert domain.perturb(value, rng(seed), move) == domain.perturb(value, rng(seed), move)


@given(domains() | st.just(TREE), seeds)
def test_nothing_moves_without_a_step_a_switch_or_a_resample(domain: Domain, seed: int) -> None:
    value = domain.sample(rng(seed))
    moved = domain.perturb(value, rng(seed + 1), Move(step=0, switch=0, resample=0))
    assert close(moved, value)


@given(domains() | st.just(TREE), seeds)
def test_coordinates_lie_in_the_unit_cube_and_lead_back(domain: Domain, seed: int) -> None:
    value = domain.sample(rng(seed))
    features = domain.features(value)
    assert len(features) == domain.num_features
    assert all(-1e-9 <= feature <= 1 + 1e-9 for feature in features)
    if domain is TREE:
        assert close(TREE.with_features(value, features), value)
    elif domain.num_features and not isinstance(value, dict):
        assert close(domain.at(features), value)


@given(domains() | st.just(TREE), seeds, st.lists(st.floats(0.01, 10), min_size=1, max_size=4))
def test_a_blend_of_copies_is_the_copy(domain: Domain, seed: int, weights: list[float]) -> None:
    value = domain.sample(rng(seed))
    assert close(domain.blend([value] * len(weights), weights), value)


@given(
    domains() | st.just(TREE), seeds, st.lists(st.floats(0, 10), min_size=2, max_size=4).filter(lambda w: sum(w) > 0)
)
def test_a_blend_is_of_the_domain(domain: Domain, seed: int, weights: list[float]) -> None:
    generator = rng(seed)
    domain.check(domain.blend([domain.sample(generator) for _ in weights], weights))


@settings(max_examples=30)
@given(seeds)
def test_a_step_that_is_passed_on_stays_within_its_bounds(seed: int) -> None:
    generator, step = rng(seed), 0.2
    for _ in range(50):
        step = adapt_step(step, generator, rate=1.0, low=0.05, high=0.8)
        assert 0.05 <= step <= 0.8


@given(seeds)
def test_a_new_field_moves_no_other_fields_draws(seed: int) -> None:
    from coharness.spaces.ranges import Real
    from coharness.spaces.tree import Tree

    wider = Tree(fields={"first": Real(low=0, high=1), **TREE.fields})
    value = TREE.sample(rng(seed))
    assert {**wider.sample(rng(seed)), "first": 0} == {"first": 0, **value}
    moved = wider.perturb({"first": 0.5, **value}, rng(seed), Move())
    assert {k: v for k, v in moved.items() if k != "first"} == TREE.perturb(value, rng(seed), Move())


def close(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        flat_a, flat_b = flat(a), flat(b)
        return flat_a.keys() == flat_b.keys() and all(close(flat_a[k], flat_b[k]) for k in flat_a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("step", [0.0, 3.0])
def test_a_step_outside_its_bounds_is_refused(step: float) -> None:
    with pytest.raises(ValueError, match="expected 0 < low"):
        adapt_step(step, rng(0))
