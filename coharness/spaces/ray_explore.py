"""Ray Tune's own explore, for side-by-side comparisons: the same values from the same random numbers.

It is kept apart from the typed spaces on purpose. Its faults are part of it: nothing is bounded, x1.2 and x0.8 drift downwards,
a whole number below 3 does not move, 0 stays 0 until it is resampled, and an ordered list has noops at its ends.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

FACTORS: Final = (1.2, 0.8)

Mutation = Any
"""A list or tuple of values, a function of no argument, an object with `sample(config)`, or a mapping of these."""


def ray_explore(
    config: Mapping[str, Any],
    mutations: Mapping[str, Mutation],
    rng: Random,
    *,
    resample_probability: float = 0.25,
    factors: Sequence[float] = FACTORS,
) -> dict[str, Any]:
    """A perturbed config, as `ray.tune.schedulers.pbt` (Ray 2.60) makes it.

    Args:
        config: the donor's config; left as it is.
        mutations: what `hyperparam_mutations` names.
        rng: consulted in Ray's order, so that a generator in the state of Ray's global one gives Ray's values.
        resample_probability: how often a value is drawn anew.
        factors: what a number is multiplied by, each as likely.

    Raises:
        ValueError: a mutation is of no kind that Ray knows.
    """
    found = dict(config)
    for key, mutation in mutations.items():
        value = config[key]
        if isinstance(mutation, Mapping):
            found[key] = ray_explore(value, mutation, rng, resample_probability=resample_probability, factors=factors)
        elif isinstance(mutation, list | tuple):
            if rng.random() < resample_probability or value not in mutation:
                found[key] = rng.choice(mutation)
            else:
                place = mutation.index(value) + rng.choice([-1, 1])
                found[key] = mutation[min(max(place, 0), len(mutation) - 1)]
        elif hasattr(mutation, "sample") or callable(mutation):
            moved = _draw(mutation) if rng.random() < resample_probability else value * rng.choice(list(factors))
            found[key] = bool(moved) if isinstance(value, bool) else round(moved) if isinstance(value, int) else moved
        else:
            raise ValueError(
                f"the mutation of {key} is a {type(mutation).__name__}, expected a list, a function, a domain or a mapping"
            )
    return found


def _draw(mutation: "Callable[[], Any] | Any") -> Any:
    return mutation.sample(None) if hasattr(mutation, "sample") else mutation()


def ray_quantiles(scores: Mapping[str, float], fraction: float = 0.25) -> tuple[list[str], list[str]]:
    """Names in the lower and in the upper quantile by score, as Ray's PBT cuts them: rounded up, at most half.

    Equal scores keep their order in `scores`; scores that are not a number are left out.
    """
    names = sorted((name for name, score in scores.items() if score == score), key=scores.__getitem__)
    if len(names) <= 1:
        return [], []
    num = min(math.ceil(len(names) * fraction), len(names) // 2)
    return names[:num], names[-num:]
