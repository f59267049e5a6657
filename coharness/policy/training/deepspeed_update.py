"""One update of the member in a live engine, with the micro-batches of each optimizer step dealt out to the ranks.

What is learned from is settled by `parts`, as for every backend: each micro-batch's loss carries its share of the step's mean, so
gradients add up to the same sum however rows are cut and wherever they are computed. Under ZeRO a pass is an exchange, so every
rank makes as many; a rank that has none left repeats one with weight 0. Invariants: all ranks end with the same `Progress`; the
update stops after the step in which something was not finite, and the caller then forgets what the engine holds. Driven by
`deepspeed_member`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from coharness.policy.objectives import LossParts, TokenBatch, WeightedObjective
from coharness.policy.rows import FloatArray, IntArray, PaddedRows, Rows, pad, rows_of
from coharness.policy.training.deepspeed_critic import Critic
from coharness.policy.training.deepspeed_engine import ZeroEngine
from coharness.policy.training.deepspeed_ranks import Ranks
from coharness.policy.training.forward import CausalModel
from coharness.policy.training.packing import Cut, cut
from coharness.policy.training.parts import Part, Step, plan_parts
from coharness.policy.training.update import Progress


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Share:
    """A micro-batch of this rank."""

    piece: Cut
    weight: float
    "1, or 0 where it only keeps step with the other ranks."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Before:
    """Passes over all rows as an update begins, each rank its share; see `objectives.terms.Snapshot`."""

    updater: "ShardedUpdater"
    rows: Rows

    def logprobs(self) -> FloatArray:
        """Log-probabilities under the member [N]."""
        return self._of_all(lambda padded, piece: self.updater.policy(self.rows, padded, piece.indices).logprobs)

    def reference(self) -> FloatArray:
        """Log-probabilities under the base [N]."""
        return self._of_all(lambda padded, piece: self.updater.reference(self.rows, padded, piece.indices).logprobs)

    def values(self) -> FloatArray:
        """What the member's critic expects [N]."""

        def ask(padded: PaddedRows, piece: Cut) -> Tensor:
            assert self.updater.critic is not None, "a critic was asked for that the member does not have"
            found = self.updater.policy(self.rows, padded, piece.indices, critic=self.updater.critic.head).values
            assert found is not None, "the critic was asked"
            return found

        return self._of_all(ask)

    def _of_all(self, ask: Callable[[PaddedRows, Cut], Tensor]) -> FloatArray:
        flat = np.zeros(len(self.rows.token_ids), dtype=np.float32)
        units = np.flatnonzero(self.rows.trained_lengths.reshape(-1, self.rows.unit).any(axis=1))
        with torch.no_grad():
            for share in self.updater.shares(self.rows, rows_of(units, self.rows.unit), "never"):
                padded = pad(self.rows, share.piece.indices)
                found = ask(padded, share.piece).cpu().numpy()  # [B, T]
                if share.weight:
                    learned = padded.mask[:, 1:]
                    flat[padded.flat[:, 1:][learned]] = found[learned]
        summed: FloatArray = self.updater.ranks.sum(torch.from_numpy(flat)).numpy()
        return summed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardedUpdater:
    """Runs updates on an engine, each rank its share."""

    engine: ZeroEngine
    policy: CausalModel
    "The engine's model."
    reference: CausalModel
    "The base, whole on every rank."
    critic: Critic | None
    ranks: Ranks
    objectives: Sequence[WeightedObjective]
    row_tokens: int
    "Token budget of one micro-batch, padding included."
    max_tokens: int
    "Longer rows are dropped and counted."
    max_grad_norm: float
    packing: Literal["never", "auto", "always"]
    "Whether rows share sequences."

    def run(self, own: pa.Table, borrowed: pa.Table, seed: int) -> Progress:
        """Train what the engine holds, in place; stops at the first thing that is not finite and says so."""
        progress = Progress()
        parts, num_steps = plan_parts(
            self.objectives,
            own,
            borrowed,
            seed=seed,
            max_tokens=self.max_tokens,
            snapshot=lambda rows: _Before(updater=self, rows=rows),
        )
        for part in parts:
            progress.num_rows += part.rows.num_rows
            progress.counts["rows/kept"] += part.rows.num_rows
            for name, value in part.rows.counts.items():
                progress.counts[name] += value
        for number in range(num_steps):
            self._step(parts, number, progress)
            if progress.problem:
                break
        return progress

    def shares(self, rows: Rows, indices: IntArray, packing: Literal["never", "auto", "always"]) -> list[Share]:
        """This rank's micro-batches of these rows: as many on every rank, none where there are no rows."""
        if not len(indices):
            return []
        # Smaller than the budget where that gives every rank something to do.
        padded = len(indices) * int(rows.lengths[indices].max())
        budget = min(self.row_tokens, math.ceil(padded / self.ranks.size))
        pieces = cut(rows, indices, budget, packing, overhead=self.policy.overhead)
        hands = deal([len(piece.indices) for piece in pieces], self.ranks.size)
        mine = [Share(piece=pieces[number], weight=1.0) for number in hands[self.ranks.rank]]
        idle = max(map(len, hands)) - len(mine)
        return mine + [Share(piece=pieces[-1], weight=0.0)] * idle

    def _step(self, parts: list[Part], number: int, progress: Progress) -> None:
        """One optimizer step over all objectives' rows of this step."""
        work: list[tuple[Part, Step, Share]] = []
        num_tokens = 0
        for part in parts:
            step = part.step(number)
            num_tokens += step.num_tokens
            work += [(part, step, share) for share in self.shares(part.rows, step.indices, self.packing)]
        progress.counts["tokens/trained"] += num_tokens
        if not num_tokens:
            return  # AdamW would move on by its momentum alone
        seen: list[LossParts] = []
        bad = ""
        for place, (part, step, share) in enumerate(work):
            loss = part.objective.loss(self._batch(part, step, share.piece))
            if not math.isfinite(value := loss.loss.item()):
                bad = bad or f"the loss is {value} in optimizer step {number}"
            elif share.weight:
                seen.append(loss)
            # Passed on whatever it is: the other ranks are in the same exchange.
            self.engine.backward(part.weight * share.weight * loss.loss, is_last=place == len(work) - 1)
        norm = self.engine.step()
        if self.critic is not None:
            self.critic.step(self.max_grad_norm)
        told = self.ranks.gather((bad, [(loss.sums, loss.peaks) for loss in seen]))
        for _, losses in told:
            for sums, peaks in losses:
                progress.add_loss(LossParts(loss=_NOTHING, sums=sums, peaks=peaks))
        progress.problem = next((problem for problem, _ in told if problem), "")
        if not progress.problem and not math.isfinite(norm):
            progress.problem = f"the gradient's norm is {norm} in optimizer step {number}"
        if not progress.problem:
            progress.counts["steps/taken"] += 1
            progress.add_rate("grad_norm", norm, 1)

    def _batch(self, part: Part, step: Step, piece: Cut) -> TokenBatch:
        rows, needs, indices = part.rows, part.objective.needs, piece.indices
        padded = pad(rows, indices)
        forward = self.policy(
            rows,
            padded,
            indices,
            with_entropy=needs.entropy,
            entropy_gradient=needs.entropy_gradient,
            critic=self.critic.head if needs.critic and self.critic is not None else None,
            packing=piece.packing,
        )
        reference = None
        if needs.reference:
            with torch.no_grad():
                reference = self.reference(rows, padded, indices, packing=piece.packing).logprobs
        return part.batch(step, padded, indices, forward, reference)


_NOTHING = torch.zeros(())


def deal(sizes: Sequence[int], num_ranks: int) -> list[list[int]]:
    """Which pieces each rank gets: in order, each to the rank with the fewest, and of those to the one with the least to do.

    >>> deal([3, 2, 1], 2)
    [[0], [1, 2]]
    """
    hands: list[list[int]] = [[] for _ in range(num_ranks)]
    load = [0] * num_ranks
    for number, size in enumerate(sizes):
        rank = min(range(num_ranks), key=lambda r: (len(hands[r]), load[r]))
        hands[rank].append(number)
        load[rank] += size
    return hands
