"""Rows through a model: log-probabilities of the tokens that are learned from.

Invariants: rows are padded on the right, and attention is causal, so no mask is needed and padding changes nothing; only
positions that carry loss reach the vocabulary, whose logits would otherwise be most of the memory. Driven by `torch_trainer`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from coharness.policy.objectives.terms import token_entropy, token_logprobs
from coharness.policy.rows import FloatArray, IntArray, PaddedRows, Rows, micro_batches, pad


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forward:
    """What a model says of B padded rows, at the T = L - 1 positions that predict something."""

    logprobs: Tensor
    "Of each learned token, 0 elsewhere [B, T]."
    entropy: Tensor | None
    "Of the distribution there, without gradient, 0 elsewhere [B, T]."


class CausalModel:
    """A causal language model that is asked for chosen positions only."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._head: nn.Module = model.get_output_embeddings()  # type: ignore[operator]

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self._model.parameters()).device

    def __call__(self, rows: Rows, padded: PaddedRows, indices: IntArray, *, with_entropy: bool = False) -> Forward:
        """Log-probabilities of the learned tokens of `padded`, which are the rows `indices`.

        The gradient is that of the calling context.
        """
        device = self.device
        token_ids = torch.from_numpy(padded.token_ids).to(device)  # [B, L]
        row, position = np.nonzero(padded.mask[:, 1:])  # [M]; position t predicts token t + 1
        at = (torch.from_numpy(row).to(device), torch.from_numpy(position).to(device))
        targets = token_ids[:, 1:][at]
        temperatures = torch.from_numpy(rows.temperatures[indices][row]).to(device)

        def keep_learned(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][at].unsqueeze(0), *args[1:])  # [1, M, H]

        handle = self._head.register_forward_pre_hook(keep_learned)
        try:
            logits = self._model(input_ids=token_ids[:, :-1], use_cache=False).logits[0]  # [M, V]
        finally:
            handle.remove()
        entropy = None
        if with_entropy:
            entropy = _place(token_entropy(logits.detach(), temperatures), at, padded)
        return Forward(logprobs=_place(token_logprobs(logits, targets, temperatures), at, padded), entropy=entropy)


def all_logprobs(model: CausalModel, rows: Rows, row_tokens: int) -> FloatArray:
    """Log-probability of every learned token of all rows, without gradient, 0 elsewhere [N]."""
    flat = np.zeros(len(rows.token_ids), dtype=np.float32)
    with torch.no_grad():
        for indices in micro_batches(rows.lengths, np.flatnonzero(rows.trained_lengths), row_tokens):
            padded = pad(rows, indices)
            logprobs = model(rows, padded, indices).logprobs.cpu().numpy()  # [B, T]
            learned = padded.mask[:, 1:]
            flat[padded.flat[:, 1:][learned]] = logprobs[learned]
    return flat


def _place(values: Tensor, at: tuple[Tensor, Tensor], padded: PaddedRows) -> Tensor:
    num_rows, length = padded.mask.shape
    return values.new_zeros((num_rows, length - 1)).index_put(at, values)
