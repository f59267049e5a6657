"""Rows through a model: log-probabilities of the tokens that are learned from.

Invariants: rows are padded on the right, and attention is causal, so no mask is needed and padding changes nothing (packed rows
bring a mask of their own); only positions that carry loss reach the vocabulary, whose logits would otherwise be most of the
memory. Driven by `update` and by whatever else trains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from coharness.policy.objectives.terms import token_entropy, token_logprobs
from coharness.policy.rows import BATCH_OVERHEAD, FloatArray, IntArray, PaddedRows, Rows, micro_batches, pad
from coharness.policy.training.packing import Packing

DEVICE_OVERHEAD: Final = 2048
"""An accelerator waits for its kernels to be launched; an estimate, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forward:
    """What a model says of B padded rows, at the T = L - 1 positions that predict something."""

    logprobs: Tensor
    "Of each learned token, 0 elsewhere [B, T]."
    entropy: Tensor | None
    "Of the distribution there, without gradient unless asked for, 0 elsewhere [B, T]."
    values: Tensor | None = None
    "What the critic expects there, 0 elsewhere [B, T]."


class CausalModel:
    """A causal language model that is asked for chosen positions only."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._head: nn.Module = model.get_output_embeddings()  # type: ignore[operator]

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self._model.parameters()).device

    @property
    def overhead(self) -> int:
        """What a pass costs beside its tokens, in tokens, forward and backward."""
        return BATCH_OVERHEAD if self.device.type == "cpu" else DEVICE_OVERHEAD

    def __call__(
        self,
        rows: Rows,
        padded: PaddedRows,
        indices: IntArray,
        *,
        with_entropy: bool = False,
        entropy_gradient: bool = False,
        critic: nn.Module | None = None,
        packing: Packing | None = None,
    ) -> Forward:
        """Log-probabilities of the learned tokens of `padded`, which are the rows `indices`.

        The gradient is that of the calling context.

        Args:
            rows: All rows.
            padded: Those that are asked about.
            indices: Their numbers.
            with_entropy: Whether to give the entropy as well.
            entropy_gradient: Whether it has a gradient.
            critic: A head on the trunk, hidden state -> value, to be asked as well.
            packing: How the same rows lie in memory, where not padded.
        """
        device = self.device
        row, position = np.nonzero(padded.mask[:, 1:])  # [M]; position t predicts token t + 1
        place = (torch.from_numpy(row).to(device), torch.from_numpy(position).to(device))
        targets = torch.from_numpy(padded.token_ids[:, 1:][row, position]).to(device)
        temperatures = torch.from_numpy(rows.temperatures[indices][row]).to(device)
        if packing is None:
            at, inputs = place, {"input_ids": torch.from_numpy(padded.token_ids).to(device)[:, :-1]}
        else:
            there = (packing.sequence[row], packing.start[row] + position)
            at = (torch.from_numpy(there[0]).to(device), torch.from_numpy(there[1]).to(device))
            inputs = {
                "input_ids": torch.from_numpy(packing.token_ids).to(device),
                "position_ids": torch.from_numpy(packing.positions).to(device),
                "attention_mask": torch.from_numpy(packing.attention()).to(device),
            }
        hidden: list[Tensor] = []

        def keep_learned(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            hidden.append(args[0][at])  # [M, H]
            return (hidden[0].unsqueeze(0), *args[1:])  # [1, M, H]

        handle = self._head.register_forward_pre_hook(keep_learned)
        try:
            logits = self._model(**inputs, use_cache=False).logits[0]  # [M, V]
        finally:
            handle.remove()
        entropy = values = None
        if with_entropy:
            seen = logits if entropy_gradient else logits.detach()
            entropy = _place(token_entropy(seen, temperatures), place, padded)
        if critic is not None:
            values = _place(critic(hidden[0].float()).squeeze(-1), place, padded)
        logprobs = _place(token_logprobs(logits, targets, temperatures), place, padded)
        return Forward(logprobs=logprobs, entropy=entropy, values=values)


def all_logprobs(model: CausalModel, rows: Rows, row_tokens: int) -> FloatArray:
    """Log-probability of every learned token of all rows, without gradient, 0 elsewhere [N]."""
    return _of_all(rows, row_tokens, model, lambda padded, indices: model(rows, padded, indices).logprobs)


def all_values(model: CausalModel, critic: nn.Module, rows: Rows, row_tokens: int) -> FloatArray:
    """What the critic expects at every learned token of all rows, without gradient, 0 elsewhere [N]."""

    def values(padded: PaddedRows, indices: IntArray) -> Tensor:
        found = model(rows, padded, indices, critic=critic).values
        assert found is not None, "the critic was asked"
        return found

    return _of_all(rows, row_tokens, model, values)


def _of_all(
    rows: Rows, row_tokens: int, model: CausalModel, ask: Callable[[PaddedRows, IntArray], Tensor]
) -> FloatArray:
    flat = np.zeros(len(rows.token_ids), dtype=np.float32)
    with torch.no_grad():
        learned_from = np.flatnonzero(rows.trained_lengths)
        for indices in micro_batches(rows.lengths, learned_from, row_tokens, overhead=model.overhead):
            padded = pad(rows, indices)
            found = ask(padded, indices).cpu().numpy()  # [B, T]
            learned = padded.mask[:, 1:]
            flat[padded.flat[:, 1:][learned]] = found[learned]
    return flat


def _place(values: Tensor, at: tuple[Tensor, Tensor], padded: PaddedRows) -> Tensor:
    num_rows, length = padded.mask.shape
    return values.new_zeros((num_rows, length - 1)).index_put(at, values)
