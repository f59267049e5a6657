"""Moving a rule's numbers, for a harness population: the structure stays what a person wrote, the weights may evolve."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from coharness.reward.algebra.rule import rule_from_json

WEIGHT_STEP = 0.3
"""Standard deviation of a weight's change on the log scale."""


def mutate_rule(rule: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any] | None:
    """The rule with one weight of a mean, exponent, or penalty changed; None where it has no such number.

    Weights move log-normally and keep their sign, within a factor of 100 of 1; an exponent moves by a normal step of 1 within
    [-8, 1]. Floors, caps and the order of precedence never move: they are what evolution must not trade away.
    """
    spots = list(_spots(rule, ()))
    if not spots:
        return None
    path, kind = spots[int(rng.integers(len(spots)))]
    step = float(rng.normal())
    changed = _replaced(rule, path, kind, step)
    return rule_from_json(changed).to_json()


def _spots(data: Any, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], str]]:
    found: list[tuple[tuple[Any, ...], str]] = []
    if isinstance(data, Mapping):
        for key, value in data.items():
            here = (*path, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and (key == "weight" or (path and path[-1] == "of")):
                found.append((here, "weight"))
            elif number and key == "exponent":
                found.append((here, "exponent"))
            else:
                found += _spots(value, here)
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            found += _spots(value, (*path, index))
    return found


def _replaced(data: Any, path: tuple[Any, ...], kind: str, step: float) -> Any:
    if not path:
        if kind == "exponent":
            return round(min(max(data + step, -8.0), 1.0), 4)
        size = min(max(abs(data) * math.exp(WEIGHT_STEP * step), 0.01), 100.0)
        return round(math.copysign(size, data), 6)
    key, rest = path[0], path[1:]
    if isinstance(data, Mapping):
        return {k: _replaced(v, rest, kind, step) if k == key else v for k, v in data.items()}
    return [_replaced(v, rest, kind, step) if i == key else v for i, v in enumerate(data)]
