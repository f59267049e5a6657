"""vLLM's engine with our sampling: requests of several versions in, completions out.

Owns the engine and its step loop, so that deadlines and withdrawals are looked at before every step. Runs in the engine's process
(`vllm_process`), all of it in that one process: no second one that would have to be waited for or could be left behind.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

from coharness.policy.bases import resolve_base
from coharness.policy.canary import canary_ids
from coharness.policy.codec import open_codec
from coharness.policy.generation import vllm_transfer
from coharness.policy.generation.agreement import check_requests, tolerance_of
from coharness.policy.generation.vllm_messages import Open
from coharness.policy.generation.vllm_sampling import CounterSampler, is_finite, sampling_params, scoring_params
from coharness.policy.generation.vllm_versions import AdapterVersions, FullVersions, Version, Versions
from coharness.records.episode import StopReason
from coharness.records.errors import WeightsError
from coharness.records.policy import WeightsKind, WeightsRef
from coharness.records.protocols import Generation, GenerationRequest

_LORA_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM makes room for; an adapter of a lower rank fits the next."""


@dataclass(slots=True)
class _Answer:
    """A completion while it is written."""

    row: int
    digest: str
    until: float
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@final
class VllmCore:
    """One engine."""

    def __init__(self, order: Open) -> None:
        """Load the base; the order's names are those of the configuration.

        Raises:
            PreflightError: the base is not what it should be.
            ValueError: vLLM refuses the model or a setting.
        """
        self._base = resolve_base(order.base)
        codec = open_codec(self._base.path, is_chat=self._base.is_chat)
        self._eos_id = codec.eos_id
        self._canary_ids = canary_ids(codec)
        self._max_context = min(order.max_context, self._base.max_context)
        self._calls = 0
        self._engine = LLMEngine.from_engine_args(_engine_args(order, str(self._base.path), self._max_context))
        # The sampler took its mode when it was made; scores of a prompt are read by this one, and are to be probabilities.
        self._engine.model_config.logprobs_mode = "raw_logprobs"
        run_dir, tolerance = Path(order.run_dir), tolerance_of(order.dtype)
        self._versions: Versions
        if order.lora_rank:
            self._versions = AdapterVersions(
                self._engine,
                self._base,
                run_dir,
                self._score,
                max_adapters=order.max_adapters,
                tolerance=tolerance,
                spell_out_base=self.device == "cpu",
            )
        else:
            self._versions = FullVersions(self._engine, self._base, run_dir, self._score, tolerance=tolerance)

    @property
    def device(self) -> str:
        """Where it computes."""
        return str(self._engine.vllm_config.device_config.device_type)

    def write(
        self,
        requests: Sequence[GenerationRequest],
        is_aborted: Callable[[], bool],
        alive: Callable[[], None],
    ) -> list[Generation]:
        """Write all completions, in the order of the requests.

        Args:
            requests: Of any versions, temperatures and lengths.
            is_aborted: Asked before every step: whether to withdraw what is unfinished.
            alive: Called after every step and every load.

        Raises:
            WeightsError: a reference is refused, or its weights give logits that are not finite.
            ValueError: a prompt is empty or a temperature is negative.
        """
        check_requests(requests)
        started = time.monotonic()
        answers: dict[int, Generation] = {}
        by_version: dict[WeightsRef, list[int]] = {}
        for row, request in enumerate(requests):
            by_version.setdefault(request.weights, []).append(row)
        # The base last: how it writes may depend on whether there are adapters (`vllm_versions`).
        refs = sorted(by_version, key=lambda ref: ref.kind is WeightsKind.BASE)
        for first in range(0, len(refs), self._versions.num_together):
            # All before any row is added: a canary is scored in a batch of its own.
            versions = {}
            for ref in refs[first : first + self._versions.num_together]:
                versions[ref] = self._versions.activate(ref)
                alive()
            open_answers: dict[str, _Answer] = {}
            try:
                for ref, version in versions.items():
                    for row in by_version[ref]:
                        self._add(requests[row], row, version, started, open_answers, answers)
                self._run(open_answers, answers, is_aborted, alive)
            except BaseException:
                # The engine goes on with the next call, and must not go on with this one.
                self._engine.abort_request(list(open_answers))
                raise
        return [answers[row] for row in range(len(requests))]

    def _add(
        self,
        request: GenerationRequest,
        row: int,
        version: Version,
        started: float,
        open_answers: dict[str, _Answer],
        answers: dict[int, Generation],
    ) -> None:
        budget = min(request.max_new_tokens, self._max_context - len(request.prompt_ids))
        if budget <= 0:
            answers[row] = Generation(
                output_ids=[], logprobs=[], stop_reason=StopReason.LENGTH, written_by=version.digest
            )
            return
        self._calls += 1
        name = str(self._calls)
        self._engine.add_request(
            name,
            {"prompt_token_ids": list(request.prompt_ids), "cache_salt": version.salt},
            sampling_params(request, max_tokens=budget, eos_id=self._eos_id),
            lora_request=version.adapter,
        )
        until = math.inf if request.deadline_s is None else started + request.deadline_s
        open_answers[name] = _Answer(row=row, digest=version.digest, until=until)

    def _run(
        self,
        open_answers: dict[str, _Answer],
        answers: dict[int, Generation],
        is_aborted: Callable[[], bool],
        alive: Callable[[], None],
    ) -> None:
        while open_answers:
            now = math.inf if is_aborted() else time.monotonic()
            if late := [name for name, answer in open_answers.items() if now >= answer.until]:
                self._engine.abort_request(late)
                for name in late:
                    _close(open_answers.pop(name), StopReason.ABORTED, answers)
                continue
            for output in self._engine.step():
                self._take(output, open_answers, answers)
            alive()

    def _take(self, output: Any, open_answers: dict[str, _Answer], answers: dict[int, Generation]) -> None:
        answer = open_answers[output.request_id]
        (piece,) = output.outputs
        ids = list(piece.token_ids)
        logprobs = [chosen[i].logprob for i, chosen in zip(ids, piece.logprobs, strict=True)]
        if not all(map(is_finite, logprobs)):
            raise WeightsError(
                f"the model's logits at answer token {len(answer.ids)} are not finite; expected numbers "
                "(its weights are damaged, or its update diverged)"
            )
        answer.ids += ids
        answer.logprobs += logprobs
        if output.finished:
            is_end = bool(answer.ids) and answer.ids[-1] == self._eos_id
            _close(open_answers.pop(output.request_id), StopReason.EOS if is_end else StopReason.LENGTH, answers)

    def _score(self, version: Version) -> float:
        self._calls += 1
        self._engine.add_request(
            f"canary-{self._calls}",
            {"prompt_token_ids": self._canary_ids, "cache_salt": version.salt},
            scoring_params(),
            lora_request=version.adapter,
        )
        outputs: list[Any] = []
        while self._engine.has_unfinished_requests():
            outputs += self._engine.step()
        scores = outputs[-1].prompt_logprobs[1:]
        return math.fsum(score[i].logprob for score, i in zip(scores, self._canary_ids[1:], strict=True))


def _close(answer: _Answer, stop: StopReason, answers: dict[int, Generation]) -> None:
    answers[answer.row] = Generation(
        output_ids=answer.ids, logprobs=answer.logprobs, stop_reason=stop, written_by=answer.digest
    )


def _engine_args(order: Open, model: str, max_context: int) -> EngineArgs:
    adapters: dict[str, Any] = {}
    if order.lora_rank:
        adapters = {
            "enable_lora": True,
            "max_lora_rank": next(rank for rank in _LORA_RANKS if rank >= order.lora_rank),
            # One more than asked for: the base may write through an adapter of its own.
            "max_loras": min(order.adapters_per_batch, order.max_adapters) + 1,
            "max_cpu_loras": order.max_adapters + 1,
        }
    else:
        vllm_transfer.register()
        adapters = {"weight_transfer_config": {"backend": vllm_transfer.BACKEND}}
    return EngineArgs(
        model=model,
        dtype=order.dtype,
        max_model_len=max_context,
        max_num_seqs=order.batch_size,
        kv_cache_memory_bytes=order.kv_cache_mib * 2**20,
        enforce_eager=order.eager,
        skip_tokenizer_init=True,
        # The model's own sampling defaults (a repetition penalty, say) would change what is evaluated.
        generation_config="vllm",
        logits_processors=[CounterSampler],
        logprobs_mode="processed_logits",
        # A step ahead of its own tokens, the noise would have to be guessed.
        async_scheduling=False,
        disable_log_stats=True,
        **adapters,
    )
