"""The decoding loop: one batch of prompts through one model, token by token.

Owns batching inside a call: left padding, the key/value cache, Gumbel-max sampling, per-row budgets, and dropping rows that have
ended. Knows nothing of versions or files; `transformers_engine` drives it with a model that is ready.

Invariants
- A row's tokens are a function of its own request: noise is keyed by (seed, position), padding is masked out, so batch mates
  change its arithmetic by rounding at most.
- The log-probability of a token is under the distribution it was drawn from: logits over the row's temperature, over 1 where
  greedy.
- No global random state is read or written, and the model is left as it was.
- A row that is withdrawn keeps what it wrote, and its batch mates write as if it had ended by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from coharness.policy.generation.agreement import check_requests
from coharness.policy.noise import gumbel_noise
from coharness.records.episode import StopReason
from coharness.records.errors import WeightsError
from coharness.records.protocols import Generation, GenerationRequest

Withdrawn = Callable[[], Tensor | None]
"""Asked before every token: whether each request is withdrawn [N], None where none is."""

_COMPACT_SHARE: Final = 0.25
"""Share of ended rows at which the batch is compacted: a copy of the cache costs about as much as one step."""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Rows still in the batch; all have one entry a row, in one order."""

    row: Tensor
    "Index of the row in the caller's requests [B]."
    mask: Tensor | None
    "1 on tokens, 0 on padding, over prompt and all possible answer tokens [B, W + T]; None where nothing is padded."
    length: Tensor
    "Tokens of the prompt [B]."
    temperature: Tensor
    "1 for a greedy row [B]."
    sampled: Tensor
    "False for a greedy row [B]."
    budget: Tensor
    "Tokens the row may write [B]."
    ended: Tensor
    "Whether the row wrote its end token or ran out of budget [B]."
    seed: "np.ndarray[Any, np.dtype[np.uint64]]"
    stream: "np.ndarray[Any, np.dtype[np.uint64]]"
    "Position of the row's first token in its stream of noise."

    def keep(self, index: Tensor) -> None:
        """Keep only the rows at `index`."""
        chosen = index.numpy()
        self.row, self.length, self.temperature = self.row[index], self.length[index], self.temperature[index]
        self.sampled, self.budget, self.ended = self.sampled[index], self.budget[index], self.ended[index]
        self.mask = None if self.mask is None else self.mask[index]
        self.seed, self.stream = self.seed[chosen], self.stream[chosen]


@torch.inference_mode()
def decode(
    model: Any,
    requests: Sequence[GenerationRequest],
    *,
    eos_id: int,
    max_context: int,
    withdrawn: Withdrawn | None = None,
) -> list[Generation]:
    """Write one completion a request, all with `model`; answers stand in the order of the requests.

    Args:
        model: A causal language model of transformers, in eval mode, with the wanted weights active.
        requests: At least one; similar prompt lengths waste least. Their `weights` and `deadline_s` are not looked at.
        eos_id: The token that ends a completion.
        max_context: Tokens of prompt and answer together; a request's budget is cut to what its prompt leaves.
        withdrawn: Says which requests to end early, stopped by ABORTED.

    Returns:
        Completions; one whose prompt leaves no room is empty and stopped by length.

    Raises:
        ValueError: a prompt is empty or a temperature is negative.
        WeightsError: the model's logits are not finite.
    """
    check_requests(requests)
    budgets = [min(r.max_new_tokens, max_context - len(r.prompt_ids)) for r in requests]
    rows = [i for i, budget in enumerate(budgets) if budget > 0]
    longest = max((budgets[i] for i in rows), default=0)
    written = torch.zeros((len(requests), longest), dtype=torch.long)  # [N, T]
    logprobs = torch.zeros((len(requests), longest), dtype=torch.float32)  # [N, T]
    lengths = torch.zeros(len(requests), dtype=torch.long)  # [N]
    aborted = torch.zeros(len(requests), dtype=torch.bool)  # [N]
    if rows:
        _run(model, requests, rows, budgets, eos_id, max_context, written, logprobs, lengths, aborted, withdrawn)
    return [
        _generation(ids[:n], lps[:n], eos_id, early)
        for ids, lps, n, early in zip(
            written.tolist(), logprobs.tolist(), lengths.tolist(), aborted.tolist(), strict=True
        )
    ]


def _run(
    model: Any,
    requests: Sequence[GenerationRequest],
    rows: list[int],
    budgets: list[int],
    eos_id: int,
    max_context: int,
    written: Tensor,
    logprobs: Tensor,
    lengths: Tensor,
    aborted: Tensor,
    withdrawn: Withdrawn | None,
) -> None:
    chosen = [requests[i] for i in rows]
    batch = _prepare(chosen, rows, [budgets[i] for i in rows])
    cache = DynamicCache(config=model.config)
    logits, width = _prefill(model, chosen, batch, cache)
    for t in range(written.shape[1]):
        if withdrawn is not None and (late := withdrawn()) is not None:
            leaving = late[batch.row] & ~batch.ended  # [B]
            aborted[batch.row[leaving]] = True
            lengths[batch.row[leaving]] = t
            batch.ended |= leaving
            if bool(batch.ended.all()):
                return
        token, logprob = _choose(logits, batch, t)
        written[batch.row, t] = token
        logprobs[batch.row, t] = logprob
        ending = (token == eos_id) | (batch.budget == t + 1)
        lengths[batch.row[ending & ~batch.ended]] = t + 1
        batch.ended |= ending
        num_ended = int(batch.ended.sum())
        if num_ended == len(token):
            return
        if num_ended >= _COMPACT_SHARE * len(token):
            index = (~batch.ended).nonzero().flatten()
            batch.keep(index)
            cache.batch_select_indices(index)
            token = token[index]
        output = model(
            input_ids=token[:, None],
            attention_mask=None if batch.mask is None else batch.mask[:, : width + t + 1],
            # A row that ended may still be carried along; a learned position beyond the context would not exist.
            position_ids=(batch.length[:, None] + t).clamp_(max=max_context - 1),
            past_key_values=cache,
            use_cache=True,
        )
        logits = output.logits[:, -1]  # [B, V]


def _prepare(requests: Sequence[GenerationRequest], rows: list[int], budgets: list[int]) -> _Batch:
    """The state of a batch of these requests."""
    length = torch.tensor([len(r.prompt_ids) for r in requests])
    width = int(length.max())
    columns = torch.arange(width + max(budgets))
    temperature = torch.tensor([r.temperature for r in requests], dtype=torch.float32)
    return _Batch(
        row=torch.tensor(rows),
        mask=(columns >= width - length[:, None]).long() if int(length.min()) < width else None,
        length=length,
        temperature=torch.where(temperature > 0, temperature, 1.0),
        sampled=temperature > 0,
        budget=torch.tensor(budgets),
        ended=torch.zeros(len(rows), dtype=torch.bool),
        seed=np.array([r.seed for r in requests], dtype=np.uint64),
        stream=np.array([r.position for r in requests], dtype=np.uint64),
    )


def _prefill(model: Any, requests: Sequence[GenerationRequest], batch: _Batch, cache: Any) -> tuple[Tensor, int]:
    """Read the prompts into the cache; returns the logits after them [B, V] and the width of the padded prompts.

    A prompt that several requests share (the samples of one group) is read once.
    """
    prompts = list(dict.fromkeys(r.prompt_ids for r in requests))
    place = {prompt: i for i, prompt in enumerate(prompts)}
    copies = torch.tensor([place[r.prompt_ids] for r in requests])  # [B] -> distinct prompt
    width = max(map(len, prompts))
    # Padding repeats the prompt's own first token: any id will do, since it is masked out.
    ids = torch.tensor([[p[0]] * (width - len(p)) + list(p) for p in prompts])  # [P, W]
    length = torch.tensor([len(p) for p in prompts])
    columns = torch.arange(width)
    output = model(
        input_ids=ids,
        attention_mask=None if batch.mask is None else (columns >= width - length[:, None]).long(),
        position_ids=(columns - (width - length[:, None])).clamp_(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits = output.logits[:, -1]  # [P, V]
    if len(prompts) < len(requests):
        cache.batch_select_indices(copies)
        logits = logits[copies]
    return logits, width


def _choose(logits: Tensor, batch: _Batch, t: int) -> tuple[Tensor, Tensor]:
    """The next token of each row and its log-probability, both [B], from logits [B, V]."""
    scaled = logits.float() / batch.temperature[:, None]  # [B, V]
    if bool(batch.sampled.any()):
        noise = gumbel_noise(batch.seed, batch.stream + np.uint64(t), scaled.shape[1])
        token = torch.where(batch.sampled[:, None], noise, 0.0).add_(scaled).argmax(-1)  # [B]
    else:
        token = scaled.argmax(-1)  # [B]
    logprob = scaled.gather(1, token[:, None]).squeeze(1) - scaled.logsumexp(-1)
    if not bool(torch.isfinite(logprob).all()):
        raise WeightsError(
            f"the model's logits at answer token {t} are not finite; expected numbers "
            "(its weights are damaged, or its update diverged)"
        )
    return token, logprob


def _generation(ids: list[int], logprobs: list[float], eos_id: int, aborted: bool) -> Generation:
    stop = StopReason.EOS if ids and ids[-1] == eos_id else StopReason.LENGTH
    if aborted:
        stop = StopReason.ABORTED
    return Generation(output_ids=ids, logprobs=logprobs, stop_reason=stop)
