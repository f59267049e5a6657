"""Small parents, bases and statistics for every rule of the table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from coharness.evolution.merging import RULES, Statistics
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES

Map = dict[str, torch.Tensor]
SHAPES: dict[str, tuple[int, ...]] = {
    "scalar": (),
    "empty": (0, 3),
    "one": (1,),
    "column": (5, 1),
    "row": (1, 17),
    "matrix": (9, 7),
}
WEIGHTS = [0.5, 0.2, 0.9]
ALL = sorted(RULES)
RANDOM = [name for name in ALL if RULES[name].is_random]


def maps(count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Map]:
    rng = np.random.default_rng(seed)
    return [{n: torch.tensor(rng.normal(size=s)).to(dtype) for n, s in SHAPES.items()} for _ in range(count)]


def count_for(rule: str) -> int:
    return RULES[rule].most_parents or 3


def base_for(rule: str, dtype: torch.dtype = torch.float32) -> Map | None:
    return maps(1, dtype, seed=9)[0] if RULES[rule].takes_base else None


def statistics_for(rule: str, parents: Sequence[Map]) -> dict[str, Any]:
    """Statistics that depend on a parent's content alone, so that they move with it."""
    match RULES[rule].statistics:
        case Statistics.NONE:
            return {}
        case Statistics.FISHER:
            return {"statistics": [{n: t.double().square().float() for n, t in parent.items()} for parent in parents]}
        case Statistics.INNER_PRODUCTS:
            wide = [parent["matrix"].double() for parent in parents if "matrix" in parent]
            return {"statistics": [{"matrix": x.T @ x} for x in wide] or [{} for _ in parents]}


def merge(
    rule: str,
    parents: Sequence[Map],
    weights: Sequence[float],
    base: Map | None = None,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    **settings: Any,
) -> Map:
    configured = RULES[rule].configured({**statistics_for(rule, parents), **settings})
    return configured(parents, weights, base, chunk_bytes=chunk_bytes)
