"""What an update learns from, before any gradient: each objective's rows, cut into optimizer steps, and what it fixes beforehand.

Backend-neutral: a backend brings a `Snapshot` maker (how it runs passes over all rows) and the passes of a micro-batch; what
rows there are, in which step, and what an objective sees of them is decided here, the same for all. Driven by updaters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from coharness.policy.objectives.protocol import Objective, WeightedObjective
from coharness.policy.objectives.terms import Prepared, Snapshot, Targets, TokenBatch, mean_weights
from coharness.policy.rows import FloatArray, IntArray, PaddedRows, Rows, split_steps
from coharness.policy.training.forward import Forward
from coharness.records.ids import derive_seed

ROWS_PER_STEP: Final = 64
"""Rows of one optimizer step. An update of more takes round(rows / ROWS_PER_STEP) steps of equal size: a learning rate is tuned
for steps of about one size, and how many rows the filters leave must not change what it means."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One objective's share of an update."""

    weighted: WeightedObjective
    rows: Rows
    steps: list[IntArray]
    "Rows of each step, whole units."
    proximal: FloatArray | None
    "Log-probabilities as the update began, None where an update of one step has them anyway [N]."
    prepared: Prepared | None
    "What the objective fixed when the update began."

    @property
    def objective(self) -> Objective:
        """The objective."""
        return self.weighted.objective

    @property
    def weight(self) -> float:
        """Its weight in the sum that is minimised."""
        return self.weighted.weight

    def step(self, number: int) -> "Step":
        """The rows of a step that have something to learn from, and what its mean is taken over."""
        indices = self.steps[number]
        learned = self.rows.trained_lengths[indices]
        kept = (learned > 0).reshape(-1, self.rows.unit).any(axis=1).repeat(self.rows.unit)
        return Step(indices=indices[kept], num_tokens=int(learned.sum()), num_rows=int(np.count_nonzero(learned)))

    def batch(
        self, step: "Step", padded: PaddedRows, indices: IntArray, forward: Forward, reference: Tensor | None
    ) -> TokenBatch:
        """One micro-batch as the objective sees it.

        Args:
            step: Which it belongs to.
            padded: Its rows.
            indices: Their numbers.
            forward: What the member says of them.
            reference: Log-probabilities of the base, where the objective needs them [B, T].
        """
        device = forward.logprobs.device
        places = padded.flat[:, 1:]

        def placed(flat: FloatArray) -> Tensor:
            return torch.from_numpy(flat[places]).to(device)

        mask = torch.from_numpy(padded.mask[:, 1:]).to(device)
        targets = None
        prepared = self.prepared
        if prepared is not None and prepared.values is not None:
            assert prepared.advantages is not None, "values come with advantages"
            assert prepared.returns is not None, "values come with returns"
            targets = Targets(
                values=placed(prepared.values),
                advantages=placed(prepared.advantages),
                returns=placed(prepared.returns),
            )
        return TokenBatch(
            logprobs=forward.logprobs,
            mask=mask,
            weights=mean_weights(
                mask,
                self.objective.mean,
                num_tokens=step.num_tokens,
                num_rows=step.num_rows,
                constant_length=self.weighted.constant_length,
            ),
            advantages=torch.from_numpy(self.rows.advantages[indices]).to(device),
            behaviour=placed(self.rows.behaviour),
            proximal=forward.logprobs.detach() if self.proximal is None else placed(self.proximal),
            reference=reference,
            entropy=forward.entropy,
            values=forward.values,
            targets=targets,
            baseline=0.0 if prepared is None else prepared.baseline,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One objective's rows of one optimizer step."""

    indices: IntArray
    num_tokens: int
    "Tokens that are learned from."
    num_rows: int
    "Rows that have such a token."


def plan_parts(
    objectives: Sequence[WeightedObjective],
    own: pa.Table,
    borrowed: pa.Table,
    *,
    seed: int,
    max_tokens: int,
    snapshot: Callable[[Rows], Snapshot],
) -> tuple[list[Part], int]:
    """Each objective's rows, cut into the update's steps; and the number of steps.

    Args:
        objectives: What is minimised.
        own: Episodes of the member.
        borrowed: Episodes of other members.
        seed: The job's seed.
        max_tokens: Longer rows are dropped and counted.
        snapshot: How to see all rows as the update begins.
    """
    picked = [
        (weighted, weighted.objective.rows(own, borrowed, seed=seed, max_tokens=max_tokens)) for weighted in objectives
    ]
    largest = max(rows.num_rows for _, rows in picked)
    num_steps = max(1, round(largest / ROWS_PER_STEP))
    parts = []
    for number, (weighted, rows) in enumerate(picked):
        before = snapshot(rows)
        proximal = before.logprobs() if weighted.objective.needs.proximal and num_steps > 1 else None
        parts.append(
            Part(
                weighted=weighted,
                rows=rows,
                steps=split_steps(rows.num_rows, num_steps, derive_seed("steps", seed, number), rows.unit),
                proximal=proximal,
                prepared=weighted.objective.prepare(rows, before),
            )
        )
    return parts, num_steps
