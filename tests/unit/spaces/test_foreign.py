"""Search spaces of Ray Tune and Optuna become ours, or are refused with a reason.

The stand-ins have the names and attributes of Ray 2.60 and Optuna 5.0; the real ones are read too where they are installed.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from coharness.records.errors import ConfigError
from coharness.spaces.discrete import Choice, Ordinal
from coharness.spaces.foreign import from_any, from_optuna, from_ray_tune
from coharness.spaces.ranges import Real, Whole
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree


def ray(kind: str, sampler: str, quantum: float | None = None, **attributes: Any) -> Any:
    made = type(sampler, (), {})()
    if quantum is not None:
        made = type("Quantized", (), {"q": quantum, "sampler": made})()
    domain = type(kind, (), {"__module__": "ray.tune.search.sample", "get_sampler": lambda self: made})()
    for name, value in attributes.items():
        setattr(domain, name, value)
    return domain


def optuna(kind: str, **attributes: Any) -> Any:
    return type(kind, (SimpleNamespace,), {"__module__": "optuna.distributions"})(**attributes)


def test_ray_tunes_domains() -> None:
    tree = from_ray_tune(
        {
            "rate": ray("Float", "_LogUniform", lower=1e-4, upper=1e-1),
            "layers": ray("Integer", "_Uniform", lower=1, upper=9),
            "act": ray("Categorical", "_Uniform", categories=["relu", "gelu"]),
            "drop": ray("Float", "_Uniform", 0.25, lower=0.0, upper=1.0),
            "seed": 3,
            "inner": {"momentum": ray("Float", "_Uniform", lower=-1.0, upper=1.0)},
        }
    )
    assert tree == Tree(
        fields={
            "rate": Real(low=1e-4, high=1e-1, scale=Scale.LOG),
            "layers": Whole(low=1, high=8),
            "act": Choice(options=("relu", "gelu")),
            "drop": Ordinal(levels=(0.0, 0.25, 0.5, 0.75, 1.0)),
            "seed": Choice(options=(3,)),
            "inner": Tree(fields={"momentum": Real(low=-1.0, high=1.0)}),
        }
    )


def test_optunas_distributions() -> None:
    space = {
        "rate": optuna("FloatDistribution", low=1e-3, high=1.0, log=True, step=None),
        "half": optuna("FloatDistribution", low=0.0, high=1.0, log=False, step=0.5),
        "three": optuna("IntDistribution", low=1, high=7, log=False, step=3),
        "width": optuna("IntDistribution", low=1, high=7, log=True, step=1),
        "act": optuna("CategoricalDistribution", choices=("x", None)),
    }
    expected = Tree(
        fields={
            "rate": Real(low=1e-3, high=1.0, scale=Scale.LOG),
            "half": Ordinal(levels=(0.0, 0.5, 1.0)),
            "three": Ordinal(levels=(1, 4, 7)),
            "width": Whole(low=1, high=7, scale=Scale.LOG),
            "act": Choice(options=("x", None)),
        }
    )
    assert from_optuna(space) == expected
    assert from_any(space) == expected


@pytest.mark.parametrize(
    ("domain", "match"),
    [
        (ray("Float", "_Normal", lower=0.0, upper=1.0), "Normal has no bounds"),
        (ray("Function", "_CallSampler"), "a Function of Ray Tune"),
        ({"grid_search": [1, 2]}, "is a grid"),
    ],
)
def test_what_cannot_be_perturbed_is_refused_with_its_name(domain: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as error:
        from_ray_tune({"inner": {"x": domain}})
    assert "inner.x" in str(error.value)


def test_anything_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="no distribution of Optuna's"):
        from_optuna({"x": optuna("DiscreteUniform")})
    with pytest.raises(ConfigError, match="too many levels"):
        from_optuna({"x": optuna("FloatDistribution", low=0.0, high=1.0, log=False, step=1e-6)})
    with pytest.raises(ConfigError, match="a list, expected a mapping"):
        from_any([1])


def test_our_own_domains_pass_through() -> None:
    tree = Tree(fields={"a": Real(low=0, high=1)})
    assert from_any(tree) is tree
    assert from_any({"a": Real(low=0, high=1), "b": 2}) == Tree(
        fields={"a": Real(low=0, high=1), "b": Choice(options=(2,))}
    )


def test_the_real_packages_are_read_where_they_are_installed() -> None:
    tune = pytest.importorskip("ray.tune", reason="Ray Tune is not installed", exc_type=ImportError)
    assert from_any({"a": tune.loguniform(1e-4, 1e-1), "n": tune.randint(1, 9)}) == Tree(
        fields={"a": Real(low=1e-4, high=1e-1, scale=Scale.LOG), "n": Whole(low=1, high=8)}
    )
    distributions = pytest.importorskip("optuna", reason="Optuna is not installed").distributions
    assert from_any({"a": distributions.FloatDistribution(0.0, 1.0)}) == Tree(fields={"a": Real(low=0.0, high=1.0)})
