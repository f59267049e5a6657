"""Objectives: what a member's update minimises, one a file; each picks its rows and turns log-probabilities into a loss.

An objective is a frozen record of its settings. The trainer does all forward passes, so that an objective is arithmetic on
[B, T] tensors and can be tested against an oracle without a model. A new one is a new file and a new line in `objectives_of`.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from coharness.config.schema import TrainingSection
from coharness.policy.objectives.grpo import Grpo
from coharness.policy.objectives.sft import Sft
from coharness.policy.objectives.terms import LossParts, Mean, TokenBatch
from coharness.policy.rows import Rows

__all__ = ["Grpo", "LossParts", "Mean", "Objective", "Sft", "TokenBatch", "WeightedObjective", "objectives_of"]


class Objective(Protocol):
    """What the trainer needs of an objective."""

    @property
    def mean(self) -> Mean:
        """What its loss is averaged over."""
        ...

    @property
    def needs_reference(self) -> bool:
        """Whether `TokenBatch.reference` must be there."""
        ...

    @property
    def needs_entropy(self) -> bool:
        """Whether `TokenBatch.entropy` must be there."""
        ...

    @property
    def on_policy(self) -> bool:
        """Whether it compares with the policy that the update began with (`TokenBatch.proximal`)."""
        ...

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The rows it learns from in one update."""
        ...

    def loss(self, batch: TokenBatch) -> LossParts:
        """Its loss on one micro-batch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedObjective:
    """An objective and its weight in the sum that is minimised."""

    objective: Objective
    weight: float


def objectives_of(config: TrainingSection) -> tuple[WeightedObjective, ...]:
    """The objectives that `training.objective` names, with their weights."""
    sft = Sft(keep_solved=config.keep_solved)
    grpo = Grpo(kl_coefficient=config.kl_coefficient, tis_cap=config.tis_cap)
    match config.objective:
        case "sft":
            return (WeightedObjective(objective=sft, weight=1.0),)
        case "grpo":
            return (WeightedObjective(objective=grpo, weight=1.0),)
        case "sft+grpo":
            return (
                WeightedObjective(objective=grpo, weight=1.0),
                WeightedObjective(objective=sft, weight=config.sft_mix),
            )
