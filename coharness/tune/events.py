"""What a search writes down, and what it sends to workers and hears from them.

Orders are no events: they follow from the state, so a resumed search issues again what was in flight when it ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coharness.spaces.domain import Value

SegmentId = str
"""Name of one interval of one member, and of the checkpoint it ends with: `p3-12`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An interval that ended."""

    slot: int
    segment: SegmentId
    steps: int
    "Steps that were done; fewer than asked where the target was reached."
    metrics: Mapping[str, float]
    "Of the last step."
    seconds: float
    "From the start of the interval to a durable checkpoint."
    error: str = ""
    "Why there is no checkpoint; empty where there is one."


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a member does next; written before it is acted on."""

    slot: int
    member: str
    "Its name from now on; a new one where weights were copied, merged or begun anew."
    parents: tuple[tuple[SegmentId, float], ...]
    "Checkpoints that it goes on from, with their weights; none to begin from scratch, its own to go on."
    hyperparameters: Mapping[str, Value]
    step: float
    "Size of its own explore step, in units."
    seed: int
    "Of its randomness, where it begins from scratch or parts from its parent."
    is_birth: bool
    is_over: bool = False
    "It has done its work, and gets no more."
    why: str = ""
    retests: str = ""
    "The elite that it goes on from with the same setting."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The search is over."""

    why: str


Event = Report | Decision | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One interval for a worker."""

    slot: int
    segment: SegmentId
    parents: tuple[tuple[SegmentId, float], ...]
    hyperparameters: Mapping[str, Value]
    seed: int
    reseed: bool
    "Whether randomness starts from `seed`; else it goes on with the checkpoint's."
    steps: int
    attempt: int = 1
