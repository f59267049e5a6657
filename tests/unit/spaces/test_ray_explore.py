"""The compatibility mode gives Ray Tune's own values, its faults included."""

import math
from random import Random

import pytest

from coharness.spaces.ray_explore import ray_explore, ray_quantiles

CONFIG = {"lr": 0.01, "layers": 3, "bias": True, "act": "relu", "opt": {"beta": 0.9, "size": 2}, "other": 5}
MUTATIONS = {
    "lr": lambda: 0.5,
    "layers": lambda: 7,
    "bias": lambda: False,
    "act": ["relu", "gelu", "tanh"],
    "opt": {"beta": lambda: 0.1, "size": [1, 2, 4]},
}
# What `ray.tune.schedulers.pbt._explore` of Ray 2.60.0 gave, applied six times after `random.seed(7)`.
RAY = [
    {"lr": 0.012, "layers": 4, "bias": False, "act": "gelu", "opt": {"beta": 1.08, "size": 2}},
    {"lr": 0.0144, "layers": 7, "bias": False, "act": "relu", "opt": {"beta": 0.8640000000000001, "size": 1}},
    {"lr": 0.5, "layers": 6, "bias": False, "act": "relu", "opt": {"beta": 0.1, "size": 1}},
    {"lr": 0.6, "layers": 7, "bias": False, "act": "gelu", "opt": {"beta": 0.08000000000000002, "size": 1}},
    {"lr": 0.72, "layers": 7, "bias": False, "act": "tanh", "opt": {"beta": 0.09600000000000002, "size": 2}},
    {"lr": 0.5, "layers": 6, "bias": False, "act": "tanh", "opt": {"beta": 0.07680000000000002, "size": 4}},
]


def test_the_values_are_rays() -> None:
    rng, config = Random(7), CONFIG
    for expected in RAY:
        config = ray_explore(config, MUTATIONS, rng)
        assert config == {**expected, "other": 5}
    assert CONFIG["lr"] == 0.01


def test_the_values_are_rays_for_as_long_as_one_looks() -> None:
    pbt = pytest.importorskip("ray.tune.schedulers.pbt", reason="Ray Tune is not installed", exc_type=ImportError)
    import random

    state = random.getstate()
    try:
        random.seed(3)
        ours, theirs, rng = CONFIG, CONFIG, Random(3)
        for _ in range(500):
            theirs, _ops = pbt._explore(theirs, MUTATIONS, 0.25, (1.2, 0.8), None)
            ours = ray_explore(ours, MUTATIONS, rng)
            assert ours == theirs
    finally:
        random.setstate(state)


def test_its_faults_are_part_of_it() -> None:
    def walk(value: float, steps: int, seed: int) -> float:
        rng, config = Random(seed), {"x": value}
        for _ in range(steps):
            config = ray_explore(config, {"x": lambda: value}, rng, resample_probability=0.0)
        return float(config["x"])

    assert walk(2, 50, 0) == 2
    assert walk(0.0, 50, 0) == 0
    logs = [math.log(walk(1.0, 50, seed)) for seed in range(400)]
    assert sum(logs) / len(logs) == pytest.approx(25 * math.log(1.2 * 0.8), abs=0.2)


def test_a_mutation_of_no_kind_is_named() -> None:
    with pytest.raises(ValueError, match="the mutation of x is a str"):
        ray_explore({"x": 1}, {"x": "log"}, Random(0))


@pytest.mark.parametrize(
    ("num", "fraction", "cut"),
    [(0, 0.25, 0), (1, 0.25, 0), (2, 0.25, 1), (4, 0.25, 1), (5, 0.25, 2), (3, 0.5, 1), (8, 0.5, 4)],
)
def test_quantiles_are_rounded_up_and_at_most_half(num: int, fraction: float, cut: int) -> None:
    scores = {f"m{i}": float(i) for i in range(num)}
    lower, upper = ray_quantiles(scores, fraction)
    assert lower == [f"m{i}" for i in range(cut)]
    assert upper == [f"m{i}" for i in range(num - cut, num)][:cut]
    assert ray_quantiles({**scores, "nan": math.nan}, fraction) == (lower, upper)
