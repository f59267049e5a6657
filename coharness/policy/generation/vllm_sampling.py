"""Our own sampling inside vLLM: a logits processor that leaves the sampler one token to choose, and its log-probability.

vLLM's sampler draws from random state of its own and knows log-probabilities at temperature 1 or after its own processing. Here
every request is greedy to vLLM; the processor divides by the request's temperature, adds noise that is a function of (episode
seed, position, token) (Gumbel, 1954; see `policy.noise`), takes the largest, and writes over the row: the log-probability of the
chosen token under the temperature-scaled distribution at its place, minus infinity elsewhere. With `logprobs_mode` set to
`processed_logits` the sampler then chooses that token and reports that number, which is what the transformers engine computes
from the same logits.

Imported by the engine's process alone, since it needs vLLM.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from coharness.policy.generation.device_noise import device_gumbel_noise
from coharness.policy.noise import gumbel_noise
from coharness.records.protocols import GenerationRequest

_NOT_FINITE: Final = float("inf")
"""Stands where a log-probability is not a number; no log-probability is positive."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One request of the batch."""

    seed: int
    position: int
    temperature: float
    written: list[int]
    "Tokens written so far; vLLM's own list, which grows."


class CounterSampler(LogitsProcessor):  # type: ignore[misc]
    """Chooses each row's token from (seed, position) alone."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}
        self._device = device

    def is_argmax_invariant(self) -> bool:
        """It decides the argmax, so vLLM applies it to greedy requests as well."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow vLLM's batch: rows removed, added and moved, in that order."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, written in batch_update.added:
            args = params.extra_args or {}
            self._rows[index] = _Row(
                seed=args.get("seed", 0),
                position=args.get("position", 0),
                temperature=args.get("temperature", 0.0),
                written=written,
            )
        for source, target, direction in batch_update.moved:
            moving, there = self._rows.pop(source, None), self._rows.pop(target, None)
            if moving is not None:
                self._rows[target] = moving
            if direction is MoveDirectionality.SWAP and there is not None:
                self._rows[source] = there

    def apply(self, logits: Tensor) -> Tensor:
        """Leave each row [V] of logits [B, V] its chosen token's log-probability and minus infinity elsewhere."""
        rows = [self._rows[i] for i in range(len(logits))]
        temperature = torch.tensor([r.temperature or 1.0 for r in rows], dtype=torch.float32)
        scaled = logits.float() / temperature.to(logits.device)[:, None]  # [B, V]
        perturbed = scaled
        drawn = [i for i, row in enumerate(rows) if row.temperature > 0]
        if drawn:
            noise = self._noise([rows[i] for i in drawn], scaled.shape[1])  # [D, V]
            perturbed = scaled.clone()
            perturbed[torch.tensor(drawn, device=logits.device)] += noise
        token = perturbed.argmax(-1, keepdim=True)  # [B, 1]
        logprob = scaled.gather(1, token) - scaled.logsumexp(-1, keepdim=True)  # [B, 1]
        logprob = torch.where(torch.isfinite(logprob), logprob, _NOT_FINITE)
        return logits.fill_(-torch.inf).scatter_(1, token, logprob.to(logits.dtype))

    def _noise(self, rows: list[_Row], vocab_size: int) -> Tensor:
        seeds = np.array([row.seed for row in rows], dtype=np.uint64)
        positions = np.array([row.position + len(row.written) for row in rows], dtype=np.uint64)
        if self._device.type == "cpu":
            return gumbel_noise(seeds, positions, vocab_size)
        return device_gumbel_noise(seeds, positions, vocab_size, self._device)


def sampling_params(request: GenerationRequest, *, max_tokens: int, eos_id: int) -> SamplingParams:
    """What vLLM is told of a request: greedy, one end token, log-probability of the chosen token; the rest is for us."""
    return SamplingParams(
        temperature=0.0,
        max_tokens=max_tokens,
        logprobs=0,
        stop_token_ids=[eos_id],
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args={"seed": request.seed, "position": request.position, "temperature": request.temperature},
    )


def scoring_params() -> SamplingParams:
    """Read a prompt and say the log-probability of each of its tokens."""
    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        prompt_logprobs=0,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def is_finite(logprob: float) -> bool:
    """Whether a reported number is a log-probability, not the mark of one that was not a number."""
    return logprob != _NOT_FINITE
