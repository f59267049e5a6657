"""The engine that writes: which one, how much it does at once, and what the engines with processes or servers need."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from coharness.config.section import Section


class VllmSection(Section):
    """The vLLM engine, in a process of its own; needs the extra `vllm`."""

    adapters_per_batch: int = Field(default=4, ge=1)
    "LoRA versions that one decoding step may mix; each takes a slot of memory in every adapted layer."
    kv_cache_mib: int = Field(default=512, ge=16)
    "Memory for keys and values."
    eager: bool = True
    "Run the model as it is written. Compiling costs most of a minute a start on a CPU and never applies to adapters there."
    start_s: float = Field(default=300.0, gt=0)
    "From the start of the process to its first word; imports are most of it."
    stall_s: float = Field(default=120.0, gt=0)
    "Without a sign of life for so long, the process is ended and the batch fails."


class EndpointSection(Section):
    """An OpenAI-compatible endpoint that serves the run's base."""

    url: str = ""
    "Root of the API, e.g. `http://127.0.0.1:8000/v1`."
    model: str = ""
    "Name under which the endpoint serves the base."
    api_key_env: str | None = None
    "Environment variable that holds the key; none is sent where left out."
    concurrency: int = Field(default=16, ge=1)
    "Requests in flight at once."
    request_s: float = Field(default=120.0, gt=0)
    "Longest a completion may take, retries included."
    max_attempts: int = Field(default=4, ge=1)
    "How often a request is sent where the connection or the server fails; what the server refuses is never sent again."
    logprobs: bool = True
    "Whether the endpoint returns log-probabilities and token ids (`return_token_ids`, as vLLM offers it)."
    check_canary: bool = True
    "Whether to compare the base's canary with the endpoint's (`echo` with log-probabilities) before the first answer."


class GenerationSection(Section):
    """The engine that writes; `generation: vllm` names it alone."""

    one_word: ClassVar[str] = "engine"

    engine: Literal["transformers", "vllm", "openai"] = "transformers"
    "`transformers` in the worker's own process, `vllm` beside it (extra `vllm`), or `openai`, an endpoint: base only."
    batch_size: int = Field(default=128, ge=1)
    "Rows decoded together."
    max_adapters: int = Field(default=16, ge=1)
    "Versions an engine keeps in memory."
    deadline_s: float | None = Field(default=None, gt=0)
    "Longest one call of the engine may take; what is unfinished then fails its item. Left to the lease where left out."
    vllm: VllmSection = VllmSection()
    endpoint: EndpointSection = EndpointSection()

    @model_validator(mode="after")
    def _refuse_an_endpoint_without_address(self) -> Self:
        if self.engine == "openai" and not (self.endpoint.url and self.endpoint.model):
            raise ValueError(
                "generation.engine=openai needs generation.endpoint.url and generation.endpoint.model, e.g. "
                "url: http://127.0.0.1:8000/v1"
            )
        return self
