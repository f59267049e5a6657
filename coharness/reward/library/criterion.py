"""A skill's executable half: one feature of one tool, a transform, a weight, and the cases it applies to.

    tool: preservation@1/ssim
    transform: {fn: sat, offset: 0.97, scale: 0.02}
    weight: 0.8
    when: {op: [recolor, remove]}
    axis: preservation

Invariant: `weight * transform(value)` is finite for every finite value; a value that is missing (NaN) contributes nothing, in
the score and in every difference of scores.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coharness.records.errors import ConfigError

Floats: TypeAlias = npt.NDArray[np.float64]

FEATURE = re.compile(r"[a-z][a-z0-9_]*@[1-9][0-9]*/[a-z][a-z0-9_]*")
"""`tool@version/output`."""
_CONTEXT = re.compile(r"[a-z][a-z0-9_-]*")
AXES = ("instruction", "preservation", "quality")
_LIMIT = 8.0
"""Scaled values are cut here: one absurd measurement must not outvote everything else."""


class Fn(StrEnum):
    """Transforms of z = (value - offset) / scale."""

    LINEAR = "linear"
    "z itself, cut at ±8."
    NEG = "neg"
    "-z, cut at ±8."
    NEG_ABS = "neg_abs"
    "-|z|: the offset is best, both sides are worse."
    CLIP = "clip"
    "z cut to [0, 1]."
    SAT = "sat"
    "tanh z: differences count around the offset."
    STEP = "step"
    "1 where z > 0, else 0."
    LOG1P = "log1p"
    "log(1 + z) of positive z, else 0."


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A function of one number."""

    fn: Fn
    offset: float = 0.0
    scale: float = 1.0
    "Above 0."

    def __post_init__(self) -> None:
        if not (math.isfinite(self.offset) and math.isfinite(self.scale) and self.scale > 0.0):
            raise ConfigError(f"transform {self.fn}: got offset {self.offset!r} and scale {self.scale!r}, "
                              "expected finite numbers "
                              "and a scale above 0")  # fmt: skip

    def __call__(self, values: Floats) -> Floats:
        """Transform values of any shape; NaN stays NaN."""
        z: Floats = np.asarray(np.clip((values - self.offset) / self.scale, -_LIMIT, _LIMIT))
        match self.fn:
            case Fn.LINEAR:
                return z
            case Fn.NEG:
                return np.asarray(-z)
            case Fn.NEG_ABS:
                return -np.abs(z)
            case Fn.CLIP:
                return np.asarray(np.clip(z, 0.0, 1.0))
            case Fn.SAT:
                return np.asarray(np.tanh(z))
            case Fn.STEP:
                return np.asarray(np.where(np.isnan(z), np.nan, (z > 0.0).astype(np.float64)))
            case Fn.LOG1P:
                return np.asarray(np.log1p(np.maximum(z, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What a skill counts, when no model reads it.

    Raises:
        ConfigError: a field that is none of what it may be.
    """

    feature: str
    "`tool@version/output`."
    transform: Transform
    weight: float
    "Finite; its sign says which way is better."
    contexts: tuple[str, ...] = ()
    "Kinds of task that it applies to, sorted; all where empty."
    axis: str = "quality"

    def __post_init__(self) -> None:
        if FEATURE.fullmatch(self.feature) is None:
            raise ConfigError(
                f"criterion: got the feature {self.feature!r:.80}, expected tool@version/output such as change@1/inside"
            )
        if not math.isfinite(self.weight):
            raise ConfigError(f"criterion on {self.feature}: got the weight {self.weight!r}, expected a finite number")
        if self.axis not in AXES:
            raise ConfigError(
                f"criterion on {self.feature}: got the axis {self.axis!r:.40}, expected one of {', '.join(AXES)}"
            )
        if any(_CONTEXT.fullmatch(context) is None for context in self.contexts):
            raise ConfigError(
                f"criterion on {self.feature}: got the contexts {self.contexts!r:.80}, expected lower-case names"
            )

    @property
    def tool(self) -> str:
        """`tool@version`."""
        return self.feature.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """The criterion as it stands in a skill's front matter."""
        transform = {"fn": self.transform.fn.value, "offset": self.transform.offset, "scale": self.transform.scale}
        when = {"when": {"op": list(self.contexts)}} if self.contexts else {}
        return {"tool": self.feature, "transform": transform, "weight": self.weight, **when, "axis": self.axis}

    @classmethod
    def from_json(cls, data: Any, where: str) -> "Criterion":
        """The inverse of `to_json`; `where` names the file in errors.

        Raises:
            ConfigError: something is missing, unknown, or of the wrong kind.
        """
        fields = _only(data, where, {"tool", "transform", "weight"}, {"when", "axis"})
        shape = _only(fields["transform"], f"{where}, transform", {"fn"}, {"offset", "scale"})
        when = _only(fields.get("when", {}), f"{where}, when", set(), {"op"})
        contexts = when.get("op", [])
        if not isinstance(contexts, list) or not all(isinstance(context, str) for context in contexts):
            raise ConfigError(f"{where}, when: got op {contexts!r:.60}, expected a list of names")
        if not isinstance(shape["fn"], str) or shape["fn"] not in list(Fn):
            raise ConfigError(f"{where}: got the transform {shape['fn']!r:.40}, expected one of {', '.join(Fn)}")
        if not isinstance(fields["tool"], str) or not isinstance(fields.get("axis", "quality"), str):
            raise ConfigError(f"{where}: tool and axis must be texts")
        transform = Transform(
            fn=Fn(shape["fn"]),
            offset=_number(shape.get("offset", 0.0), f"{where}, offset"),
            scale=_number(shape.get("scale", 1.0), f"{where}, scale"),
        )
        return cls(
            feature=fields["tool"], transform=transform, weight=_number(fields["weight"], f"{where}, weight"),
            contexts=tuple(sorted(set(contexts))), axis=fields.get("axis", "quality"),
        )  # fmt: skip


def _only(data: Any, where: str, needed: set[str], allowed: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: got {type(data).__name__}, expected a mapping")
    wrong = [*(f"{key!r} is missing" for key in sorted(needed - data.keys())),
             *(f"{key!r} is unknown" for key in sorted(map(str, data.keys() - needed - allowed)))]  # fmt: skip
    if wrong:
        raise ConfigError(f"{where}: {', '.join(wrong)}; it may hold {', '.join(sorted(needed | allowed))}")
    return data


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: got {value!r:.40}, expected a number")
    return float(value)
