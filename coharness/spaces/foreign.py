"""Search spaces of Ray Tune and of Optuna, taken as they are.

Both are read by the names of their classes and their public attributes, so neither package is imported here; a user's own
file may hold either. What has no counterpart is refused: a domain without bounds, a function of the other values, a grid.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coharness.records.errors import ConfigError
from coharness.spaces.discrete import Choice, Ordinal
from coharness.spaces.domain import Domain
from coharness.spaces.ranges import Real, Whole
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree, When


def from_ray_tune(param_space: Mapping[str, Any]) -> Tree:
    """The space of a Ray Tune `param_space` (Ray 2.x); plain values in it become choices of one option.

    Raises:
        ConfigError: a domain cannot be perturbed within bounds.
    """
    return _tree(param_space, _ray_domain, "")


def from_optuna(distributions: Mapping[str, Any]) -> Tree:
    """The space of a mapping of Optuna distributions (`study.trials[0].distributions`; Optuna 2 or newer).

    Raises:
        ConfigError: a distribution is none that Optuna has.
    """
    return _tree(distributions, _optuna_domain, "")


def from_any(space: Any) -> Tree:
    """A space given as a `Tree`, or as a mapping of fields of any of the three kinds, told by their first domain.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(space, Tree):
        return space
    if not isinstance(space, Mapping) or not space:
        raise ConfigError(f"the search space is a {type(space).__name__}, expected a mapping of names to domains")
    origins = {_origin(value) for value in _values(space)}
    if "optuna" in origins:
        return from_optuna(space)
    if "ray" in origins:
        return from_ray_tune(space)
    return _tree(space, lambda value, path: value if isinstance(value, When) or hasattr(value, "perturb") else None, "")


def _values(space: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for value in space.values():
        found += _values(value) if isinstance(value, Mapping) else [value]
    return found


def _origin(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _tree(space: Mapping[str, Any], convert: "Callable[[Any, str], Domain | When | None]", prefix: str) -> Tree:
    fields: dict[str, Domain | When] = {}
    for name, value in space.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            if set(value) == {"grid_search"}:
                raise ConfigError(f"the search space's {path} is a grid, which is run as it stands; use tune.choice")
            fields[name] = _tree(value, convert, f"{path}.")
            continue
        try:
            fields[name] = convert(value, path) or Choice(options=(value,))
        except ValueError as error:
            raise ConfigError(f"the search space's {path}: {error}") from error
    return Tree(fields=fields)


def _ray_domain(value: Any, path: str) -> Domain | None:
    if _origin(value) != "ray":
        return None
    kind, sampler = type(value).__name__, value.get_sampler()
    match kind, type(sampler).__name__.lstrip("_"):
        case "Categorical", _:
            return Choice(options=tuple(value.categories))
        case "Float" | "Integer", name:
            quantum = None
            if name == "Quantized":
                quantum, sampler = sampler.q, sampler.sampler
                name = type(sampler).__name__.lstrip("_")
            if name not in ("Uniform", "LogUniform"):
                raise ValueError(
                    f"the sampler {name} has no bounds that explore could keep; use tune.uniform or tune.loguniform"
                )
            scale = Scale.LOG if name == "LogUniform" else Scale.LINEAR
            if quantum is not None:
                return _steps(value.lower, value.upper, quantum, whole=kind == "Integer")
            # Ray's upper end of a whole range is not included.
            return (
                Whole(low=int(value.lower), high=int(value.upper) - 1, scale=scale)
                if kind == "Integer"
                else Real(low=float(value.lower), high=float(value.upper), scale=scale)
            )
        case _:
            raise ValueError(f"a {kind} of Ray Tune has no bounds that explore could keep; give a range or a choice")


def _optuna_domain(value: Any, path: str) -> Domain:
    match type(value).__name__:
        case "FloatDistribution":
            scale = Scale.LOG if value.log else Scale.LINEAR
            if value.step is not None:
                return _steps(value.low, value.high, value.step, whole=False)
            return Real(low=float(value.low), high=float(value.high), scale=scale)
        case "IntDistribution":
            if value.step != 1:
                return _steps(value.low, value.high, value.step, whole=True)
            return Whole(low=int(value.low), high=int(value.high), scale=Scale.LOG if value.log else Scale.LINEAR)
        case "CategoricalDistribution":
            return Choice(options=tuple(value.choices))
        case kind:
            raise ValueError(f"a {kind} is no distribution of Optuna's; expected Float, Int or Categorical")


def _steps(low: float, high: float, quantum: float, *, whole: bool) -> Ordinal:
    """A range in steps as ordered levels."""
    num = int((high - low) / quantum + 1e-9) + 1
    if num > 10_000:
        raise ValueError(f"{num} steps of {quantum} in {low}..{high} are too many levels; leave the step out")
    levels: Sequence[float] = [low + place * quantum for place in range(num)]
    return Ordinal(levels=tuple(round(level) for level in levels) if whole else tuple(float(level) for level in levels))
