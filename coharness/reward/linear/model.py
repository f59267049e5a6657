"""A version of the linear judge: weights, where it came from, and its name, which is the hash of both.

score = 1 / (1 + exp(-w·features(question, answer)))
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from coharness.records.errors import ConfigError
from coharness.records.ids import NO_JUDGE, JudgeId, content_hash
from coharness.reward.linear.features import FEATURES_VERSION, NAMES, NUM_FEATURES, features

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """One version; not slotted, since its name is worked out once and kept."""

    weights: Mapping[int, float]
    "Index of a feature -> weight; what is not here is 0."
    parent: JudgeId = NO_JUDGE
    "The version that it was made from, empty where it is the first."
    about: Mapping[str, Any] = field(default_factory=dict)
    "How it was made, as JSON values: operator, seed, numbers of attempts and pairs."

    def __post_init__(self) -> None:
        # What is scored with is what is stored and named: 9 significant digits, in order of the features.
        kept = {index: float(f"{weight:.9g}") for index, weight in sorted(self.weights.items()) if weight}
        object.__setattr__(self, "weights", kept)
        for index, weight in kept.items():
            if not 0 <= index < NUM_FEATURES or not math.isfinite(weight):
                raise ValueError(
                    f"weight {weight!r} of feature {index!r}; expected finite weights of features 0 to {NUM_FEATURES - 1}"
                )

    @cached_property
    def id(self) -> JudgeId:
        """Its name: `j-` and 16 hex digits of the hash of its content."""
        return JudgeId(f"j-{content_hash(self.to_json())}")

    def logit(self, question: str, answer: str) -> float:
        """The log-odds that the answer is right, as far as this judge can see."""
        return math.fsum(self.weights.get(i, 0.0) * x for i, x in features(question, answer).items())

    def score(self, question: str, answer: str) -> float:
        """The judge's opinion in (0, 1)."""
        return 1.0 / (1.0 + math.exp(-min(max(self.logit(question, answer), -30.0), 30.0)))

    def shifted(self, shifts: Mapping[str, float], **about: Any) -> "LinearModel":
        """A child whose weights of named features differ by these; a bias that is put in on purpose.

        Raises:
            ConfigError: there is no named feature of that name.
        """
        weights = dict(self.weights)
        for name, shift in shifts.items():
            if name not in NAMES:
                raise ConfigError(f"the linear judge has no feature {name!r}; named ones are {', '.join(NAMES)}")
            index = NAMES.index(name)
            weights[index] = weights.get(index, 0.0) + shift
        return LinearModel(
            weights=weights, parent=self.id, about={"operator": "shift", "shifts": dict(shifts), **about}
        )

    def to_json(self) -> dict[str, Any]:
        """The version as JSON values; `model_from_json` is the inverse."""
        return {
            "schema": SCHEMA,
            "kind": "linear",
            "features": FEATURES_VERSION,
            "parent": self.parent,
            "about": dict(self.about),
            "weights": [[index, weight] for index, weight in self.weights.items()],
        }


def model_from_json(data: Any, where: str) -> LinearModel:
    """The inverse of `to_json`.

    Raises:
        ConfigError: it is no linear judge, or one of another schema or other features.
    """
    if not isinstance(data, Mapping) or data.get("kind") != "linear":
        raise ConfigError(f"{where} holds no linear judge; make one with `coharness judge fit`")
    got = (data.get("schema"), data.get("features"))
    if got != (SCHEMA, FEATURES_VERSION):
        raise ConfigError(
            f"{where} has schema {got[0]} and features {got[1]}, this code reads {SCHEMA} and {FEATURES_VERSION}; fit it again "
            "with `coharness judge fit`"
        )
    try:
        weights = {int(index): float(weight) for index, weight in data["weights"]}
        return LinearModel(weights=weights, parent=JudgeId(str(data["parent"])), about=dict(data["about"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read as a linear judge: {error}") from error
