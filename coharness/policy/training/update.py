"""One update of one member: the rows of each objective, cut into optimizer steps and micro-batches.

Gradients of a step add up over micro-batches to exactly the gradient of the step's mean, however the rows are cut. Invariants:
nothing non-finite is stepped on; a step without a learned token moves nothing; the result is a pure function of (parameters,
optimizer state, episodes, seed) on one machine and thread count. Driven by `torch_trainer`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import torch

from coharness.policy.objectives import LossParts, TokenBatch, WeightedObjective
from coharness.policy.rows import FloatArray, Rows, pad
from coharness.policy.training.forward import CausalModel, all_logprobs, all_values
from coharness.policy.training.member_state import MemberState
from coharness.policy.training.packing import Cut, cut
from coharness.policy.training.parts import ROWS_PER_STEP as ROWS_PER_STEP
from coharness.policy.training.parts import Part, Step, plan_parts
from coharness.policy.weights import first_non_finite


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
class _Before:
    """Passes over all rows as an update begins; see `Snapshot`."""

    updater: "Updater"
    member: MemberState
    rows: Rows

    def logprobs(self) -> FloatArray:
        """Log-probabilities under the member [N]."""
        return all_logprobs(self.updater.model, self.rows, self.updater.row_tokens)

    def reference(self) -> FloatArray:
        """Log-probabilities under the base [N]."""
        return all_logprobs(self.updater.reference, self.rows, self.updater.row_tokens)

    def values(self) -> FloatArray:
        """What the member's critic expects [N]."""
        assert self.member.critic is not None, "a critic was asked for that the member does not have"
        return all_values(self.updater.model, self.member.critic, self.rows, self.updater.row_tokens)


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
    packing: Literal["never", "auto", "always"] = "never"
    "Whether rows share sequences."

    def run(self, member: MemberState, own: pa.Table, borrowed: pa.Table, seed: int) -> Progress:
        """Train `member`, which must be installed, in place; stops at the first thing that is not finite and says so."""
        progress = Progress()
        parts, num_steps = plan_parts(
            self.objectives,
            own,
            borrowed,
            seed=seed,
            max_tokens=self.max_tokens,
            snapshot=lambda rows: _Before(updater=self, member=member, rows=rows),
        )
        for part in parts:
            progress.num_rows += part.rows.num_rows
            progress.counts["rows/kept"] += part.rows.num_rows
            for name, value in part.rows.counts.items():
                progress.counts[name] += value
        for step in range(num_steps):
            self._step(member, parts, step, progress)
            if progress.problem:
                return progress
        if (bad := first_non_finite(member.trained())) is not None:
            progress.problem = f"tensor {bad!r} is not finite after the update"
        return progress

    def _step(self, member: MemberState, parts: list[Part], number: int, progress: Progress) -> None:
        """One optimizer step over all objectives' rows of this step."""
        member.optimizer.zero_grad(set_to_none=True)
        tokens_before = progress.counts["tokens/trained"]
        for part in parts:
            step = part.step(number)
            pieces = cut(part.rows, step.indices, self.row_tokens, self.packing, overhead=self.model.overhead)
            for piece in pieces:
                loss = part.objective.loss(self._batch(member, part, step, piece))
                if not math.isfinite(loss.loss.item()):
                    progress.problem = f"the loss is {loss.loss.item()} in optimizer step {number}"
                    return
                (part.weight * loss.loss).backward()  # type: ignore[no-untyped-call]
                progress.add_loss(loss)
            progress.counts["tokens/trained"] += step.num_tokens
        if progress.counts["tokens/trained"] == tokens_before:
            return  # AdamW would move on by its momentum alone
        norm = torch.nn.utils.clip_grad_norm_(member.parameters.values(), self.max_grad_norm).item()
        if not math.isfinite(norm):
            progress.problem = f"the gradient's norm is {norm} in optimizer step {number}"
            return
        if member.critic is not None:
            # Apart from the policy's, which a young critic's large gradient would shrink to nothing.
            torch.nn.utils.clip_grad_norm_(member.critic.parameters(), self.max_grad_norm)
        member.step()
        progress.counts["steps/taken"] += 1
        progress.add_rate("grad_norm", norm, 1)

    def _batch(self, member: MemberState, part: Part, step: Step, piece: Cut) -> TokenBatch:
        rows, needs, indices = part.rows, part.objective.needs, piece.indices
        padded = pad(rows, indices)
        forward = self.model(
            rows,
            padded,
            indices,
            with_entropy=needs.entropy,
            entropy_gradient=needs.entropy_gradient,
            critic=member.critic if needs.critic else None,
            packing=piece.packing,
        )
        reference = None
        if needs.reference:
            with torch.no_grad():
                reference = self.reference(rows, padded, indices, packing=piece.packing).logprobs
        return part.batch(step, padded, indices, forward, reference)
