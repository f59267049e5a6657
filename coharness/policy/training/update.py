"""One update of one member: the rows of each objective, cut into optimizer steps and micro-batches.

Gradients of a step add up over micro-batches to exactly the gradient of the step's mean, however the rows are cut. Invariants:
nothing non-finite is stepped on; a step without a learned token moves nothing; the result is a pure function of (parameters,
optimizer state, episodes, seed) on one machine and thread count. Driven by `torch_trainer`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import torch

from coharness.policy.objectives import LossParts, Objective, TokenBatch, WeightedObjective
from coharness.policy.objectives.terms import mean_weights
from coharness.policy.rows import FloatArray, IntArray, Rows, micro_batches, pad, split_steps
from coharness.policy.training.forward import CausalModel, all_logprobs
from coharness.policy.training.member_state import MemberState
from coharness.policy.weights import first_non_finite
from coharness.records.ids import derive_seed

ROWS_PER_STEP: Final = 64
"""Rows of one optimizer step. An update of more takes round(rows / ROWS_PER_STEP) steps of equal size: a learning rate is tuned
for steps of about one size, and how many rows the filters leave must not change what it means."""


@dataclass(slots=True, kw_only=True, eq=False)
class Progress:
    """What an update has done so far."""

    problem: str = ""
    "What was not finite; empty where everything was."
    num_rows: int = 0
    counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    "Metrics that add up."
    _sums: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    _peaks: dict[str, float] = field(default_factory=dict)

    def add_rate(self, name: str, numerator: float, denominator: float) -> None:
        """Count towards a metric that is a ratio of sums."""
        self._sums[name][0] += numerator
        self._sums[name][1] += denominator

    def add_loss(self, parts: LossParts) -> None:
        """Count what an objective said of one micro-batch."""
        for name, (numerator, denominator) in parts.sums.items():
            self.add_rate(name, numerator, denominator)
        for name, value in parts.peaks.items():
            self._peaks[name] = max(value, self._peaks.get(name, -math.inf))

    def metrics(self) -> dict[str, float]:
        """All metrics that are finite, by name."""
        rates = {name: total / weight for name, (total, weight) in self._sums.items() if weight}
        found = {**self.counts, **rates, **self._peaks}
        return {name: found[name] for name in sorted(found) if math.isfinite(found[name])}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One objective's share of an update."""

    objective: Objective
    weight: float
    rows: Rows
    steps: list[IntArray]
    "Rows of each step."
    proximal: FloatArray | None
    "Log-probabilities as the update began, None where an update of one step has them anyway [N]."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Updater:
    """Runs updates on the model that members are installed in."""

    model: CausalModel
    reference: CausalModel
    "The base."
    objectives: Sequence[WeightedObjective]
    row_tokens: int
    "Token budget of one micro-batch, padding included."
    max_tokens: int
    "Longer rows are dropped and counted."
    max_grad_norm: float

    def run(self, member: MemberState, own: pa.Table, borrowed: pa.Table, seed: int) -> Progress:
        """Train `member`, which must be installed, in place; stops at the first thing that is not finite and says so."""
        progress = Progress()
        parts, num_steps = self._parts(own, borrowed, seed)
        for part in parts:
            progress.num_rows += part.rows.num_rows
            progress.counts["rows/kept"] += part.rows.num_rows
            for name, value in part.rows.counts.items():
                progress.counts[name] += value
        for step in range(num_steps):
            self._step(member, parts, step, progress)
            if progress.problem:
                return progress
        if (bad := first_non_finite(member.weights())) is not None:
            progress.problem = f"tensor {bad!r} is not finite after the update"
        return progress

    def _parts(self, own: pa.Table, borrowed: pa.Table, seed: int) -> tuple[list[_Part], int]:
        """Each objective's rows, cut into the update's steps; and the number of steps."""
        picked = [
            (weighted, weighted.objective.rows(own, borrowed, seed=seed, max_tokens=self.max_tokens))
            for weighted in self.objectives
        ]
        largest = max(rows.num_rows for _, rows in picked)
        num_steps = max(1, round(largest / ROWS_PER_STEP))
        parts = [
            _Part(
                objective=weighted.objective,
                weight=weighted.weight,
                rows=rows,
                steps=split_steps(rows.num_rows, num_steps, derive_seed("steps", seed, number)),
                proximal=(
                    all_logprobs(self.model, rows, self.row_tokens)
                    if weighted.objective.on_policy and num_steps > 1
                    else None
                ),
            )
            for number, (weighted, rows) in enumerate(picked)
        ]
        return parts, num_steps

    def _step(self, member: MemberState, parts: list[_Part], step: int, progress: Progress) -> None:
        """One optimizer step over all objectives' rows of this step."""
        member.optimizer.zero_grad(set_to_none=True)
        tokens_before = progress.counts["tokens/trained"]
        for part in parts:
            indices = part.steps[step]
            learned = part.rows.trained_lengths[indices]
            num_tokens, num_rows = int(learned.sum()), int(np.count_nonzero(learned))
            for batch_rows in micro_batches(part.rows.lengths, indices[learned > 0], self.row_tokens):
                batch = self._batch(part, batch_rows, num_tokens, num_rows)
                loss = part.objective.loss(batch)
                if not math.isfinite(loss.loss.item()):
                    progress.problem = f"the loss is {loss.loss.item()} in optimizer step {step}"
                    return
                (part.weight * loss.loss).backward()  # type: ignore[no-untyped-call]
                progress.add_loss(loss)
            progress.counts["tokens/trained"] += num_tokens
        if progress.counts["tokens/trained"] == tokens_before:
            return  # AdamW would move on by its momentum alone
        norm = torch.nn.utils.clip_grad_norm_(member.parameters.values(), self.max_grad_norm).item()
        if not math.isfinite(norm):
            progress.problem = f"the gradient's norm is {norm} in optimizer step {step}"
            return
        member.step()
        progress.counts["steps/taken"] += 1
        progress.add_rate("grad_norm", norm, 1)

    def _batch(self, part: _Part, indices: IntArray, num_tokens: int, num_rows: int) -> TokenBatch:
        rows, objective, device = part.rows, part.objective, self.model.device
        padded = pad(rows, indices)
        forward = self.model(rows, padded, indices, with_entropy=objective.needs_entropy)
        reference = None
        if objective.needs_reference:
            with torch.no_grad():
                reference = self.reference(rows, padded, indices).logprobs
        mask = torch.from_numpy(padded.mask[:, 1:]).to(device)
        proximal = forward.logprobs.detach()
        if part.proximal is not None:
            proximal = torch.from_numpy(part.proximal[padded.flat[:, 1:]]).to(device)
        return TokenBatch(
            logprobs=forward.logprobs,
            mask=mask,
            weights=mean_weights(mask, objective.mean, num_tokens=num_tokens, num_rows=num_rows),
            advantages=torch.from_numpy(rows.advantages[indices]).to(device),
            behaviour=torch.from_numpy(rows.behaviour[padded.flat[:, 1:]]).to(device),
            proximal=proximal,
            reference=reference,
            entropy=forward.entropy,
        )
