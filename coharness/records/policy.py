"""Policies: versions of weights, never overwritten, and the references that name them on disk."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from coharness.records.ids import PolicyId

Hyperparameters = Mapping[str, float]
"""A member's hyperparameters by name; typed spaces in `coharness.spaces` say which exist and where they may move."""


class WeightsKind(StrEnum):
    """What a weights file holds."""

    FULL = "full"
    "All parameters of the model."
    LORA = "lora"
    "A LoRA adapter on the run's base."
    BASE = "base"
    "Nothing: the untouched base itself, where every member starts."


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRef:
    """Where weights are and how to know that they are the right ones."""

    uri: str
    "Folder relative to the run directory; empty for the base."
    digest: str
    "SHA-256 over names, types, shapes and bytes, as `coharness.evolution.merging.maps.map_digest` takes it."
    kind: WeightsKind
    num_bytes: int
    has_optimizer: bool
    canary: float
    "Sum of log-probabilities of the base's canary text under these weights; an engine that loads them must agree."


@dataclass(frozen=True, slots=True, order=True)
class VersionRef:
    """The name of one policy version."""

    policy: PolicyId
    step: int

    def __str__(self) -> str:
        return f"{self.policy}@{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One published state of a policy."""

    ref: VersionRef
    weights: WeightsRef
    parents: tuple[VersionRef, ...]
    operator: str
    "How it came to be: base, train, clone, merge."
