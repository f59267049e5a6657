"""An OpenAI-compatible endpoint that serves the run's base, as a generation engine: for evaluation, never for training.

Prompts go out as token ids (`/completions`), so what the model reads is what the loop compiled. Where the endpoint offers token
ids and log-probabilities (`return_token_ids`, as vLLM does), they come back as they are, under the endpoint's own settings;
elsewhere the text is encoded again and its log-probabilities are said to be 0. Sampling noise is the endpoint's: a seed is sent,
and what it makes of it is its own affair. Hence the capabilities: the base alone, no counter-based noise, no exact tokens.

Where `check_canary` is on, the endpoint's log-probability of the canary text is compared before the first answer.
"""

import math
import os
from collections.abc import Sequence
from typing import Any, Final, final

from coharness.config.generation import EndpointSection, GenerationSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import BaseSpec
from coharness.policy.canary import canary_ids
from coharness.policy.codec import BaseCodec, open_codec
from coharness.policy.generation.agreement import check_base, check_canary, check_kind, check_requests, tolerance_of
from coharness.policy.generation.declared import declared_capabilities
from coharness.policy.generation.endpoint_client import (
    Call,
    EndpointAborted,
    EndpointClient,
    EndpointLate,
    EndpointUnavailable,
)
from coharness.records.episode import StopReason
from coharness.records.errors import Boundary, BoundaryError, PreflightError
from coharness.records.ids import derive_seed
from coharness.records.policy import WeightsRef
from coharness.records.protocols import EngineCapabilities, Generation, GenerationRequest

_SEEDS: Final = 2**31


@final
class EndpointGenerator:
    """Generates with the base that an endpoint serves."""

    def __init__(self, base: BaseSpec, policy: PolicySection, generation: GenerationSection) -> None:
        """Connect to nothing yet.

        Args:
            base: The run's base, whose tokenizer is used.
            policy: Longest context, and the dtype of the run's own canary.
            generation: Where the endpoint is.

        Raises:
            PreflightError: the key's environment variable is not set.
        """
        self._base = base
        self._codec = open_codec(base.path, is_chat=base.is_chat)
        section = self._section = generation.endpoint
        self._capabilities = declared_capabilities(policy, generation)
        self._tolerance = tolerance_of(policy.dtype)
        self._max_context = min(policy.max_context, base.max_context)
        self._canary: float | None = None
        self._client = EndpointClient(
            section.url,
            api_key=api_key(section),
            concurrency=section.concurrency,
            max_attempts=section.max_attempts,
        )

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do."""
        return self._capabilities

    @property
    def codec(self) -> BaseCodec:
        """The base's text codec."""
        return self._codec

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Write all completions, in the order of the requests.

        Raises:
            WeightsError: a reference is not the run's base, or the endpoint computes otherwise than the base does.
            ValueError: a prompt is empty or a temperature is negative.
            BoundaryError: GENERATION where the endpoint refuses a request or cannot be reached.
        """
        check_requests(requests)
        for ref in dict.fromkeys(request.weights for request in requests):
            self._check(ref)
        budgets = [min(r.max_new_tokens, self._max_context - len(r.prompt_ids)) for r in requests]
        rows = [i for i, budget in enumerate(budgets) if budget > 0]
        calls = [self._call(requests[i], budgets[i]) for i in rows]
        answers = [
            Generation(output_ids=[], logprobs=[], stop_reason=StopReason.LENGTH, written_by=r.weights.digest)
            for r in requests
        ]
        for i, answer in zip(rows, self._client.send(calls), strict=True):
            answers[i] = self._generation(requests[i], budgets[i], answer)
        return answers

    def abort(self) -> None:
        """Withdraw what is in flight."""
        self._client.abort()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _check(self, ref: WeightsRef) -> None:
        check_kind(ref, self._capabilities.kinds)
        check_base(ref, self._base)
        if not self._section.check_canary:
            return
        if self._canary is None:
            self._canary = self._score(canary_ids(self._codec))
        check_canary(ref, self._canary, self._tolerance)

    def _score(self, ids: list[int]) -> float:
        body = {
            "model": self._section.model,
            "prompt": ids,
            "max_tokens": 1,
            "temperature": 0,
            "echo": True,
            "logprobs": 1,
        }
        call = Call(path="completions", body=body, deadline_s=self._section.request_s)
        (answer,) = self._client.send([call])
        hint = "an endpoint that cannot echo a prompt's log-probabilities needs generation.endpoint.check_canary=false"
        if isinstance(answer, BoundaryError):
            raise BoundaryError(answer.boundary, f"{answer.message} ({hint})")
        scores = (_choice(answer).get("logprobs") or {}).get("token_logprobs") or []
        if len(scores) < len(ids) or any(score is None for score in scores[1 : len(ids)]):
            raise BoundaryError(
                Boundary.GENERATION,
                f"{self._section.url} scored {len(scores)} of the canary's {len(ids)} tokens; {hint}",
            )
        return math.fsum(scores[1 : len(ids)])

    def _call(self, request: GenerationRequest, budget: int) -> Call:
        body: dict[str, Any] = {
            "model": self._section.model,
            "prompt": list(request.prompt_ids),
            "max_tokens": budget,
            "temperature": request.temperature,
            "seed": derive_seed(request.seed, request.position) % _SEEDS,
        }
        if self._section.logprobs:
            body |= {"logprobs": 1, "return_token_ids": True}
        limits = (self._section.request_s, math.inf if request.deadline_s is None else request.deadline_s)
        return Call(path="completions", body=body, deadline_s=min(limits))

    def _generation(
        self, request: GenerationRequest, budget: int, answer: dict[str, Any] | BoundaryError
    ) -> Generation:
        if isinstance(answer, BoundaryError):
            is_own = request.deadline_s is not None and request.deadline_s <= self._section.request_s
            withdrawn = isinstance(answer, EndpointAborted) or (
                is_own and isinstance(answer, EndpointLate | EndpointUnavailable)
            )
            if not withdrawn:
                raise answer
            return Generation(
                output_ids=[], logprobs=[], stop_reason=StopReason.ABORTED, written_by=request.weights.digest
            )
        choice = _choice(answer)
        ids, logprobs = self._tokens(choice)
        return Generation(
            output_ids=ids[:budget],
            logprobs=logprobs[:budget],
            stop_reason=StopReason.EOS if self._codec.eos_id in ids[:budget] else StopReason.LENGTH,
            written_by=request.weights.digest,
        )

    def _tokens(self, choice: dict[str, Any]) -> tuple[list[int], list[float]]:
        """Ids and log-probabilities of a choice, up to the end token."""
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        eos = self._codec.eos_id
        if ids is None:
            ids = self._codec.encode_completion(str(choice.get("text", "")))[:-1]
            logprobs = None
        ids = [int(i) for i in ids]
        if choice.get("finish_reason") == "stop" and eos not in ids:
            ids.append(eos)
        if eos in ids:
            ids = ids[: ids.index(eos) + 1]
        known = [float(x) for x in logprobs or ()][: len(ids)]
        return ids, known + [0.0] * (len(ids) - len(known))


def api_key(section: EndpointSection) -> str | None:
    """The endpoint's key, None where it needs none.

    Raises:
        PreflightError: the environment variable that should hold it is not set.
    """
    if section.api_key_env is None:
        return None
    key = os.environ.get(section.api_key_env)
    if not key:
        raise PreflightError(
            f"generation.endpoint.api_key_env names {section.api_key_env}, which is not set; export it, or leave the setting out"
        )
    return key


def _choice(answer: dict[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BoundaryError(Boundary.GENERATION, f"the endpoint's answer has no choices: {str(answer)[:300]}")
    choice: dict[str, Any] = choices[0]
    return choice
