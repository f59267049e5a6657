"""What the engine of a config will be able to do, said before it is built, without torch, vLLM or a connection."""

import importlib.util

from coharness.config.generation import GenerationSection
from coharness.config.schema import PolicySection
from coharness.policy.generation.vllm_extra import require_vllm
from coharness.records.errors import PreflightError
from coharness.records.policy import WeightsKind
from coharness.records.protocols import EngineCapabilities


def declared_capabilities(policy: PolicySection, generation: GenerationSection) -> EngineCapabilities:
    """What the engine can do in a run with these settings; the built engine says the same."""
    member = WeightsKind.LORA.value if policy.weights == "lora" else WeightsKind.FULL.value
    base = WeightsKind.BASE.value
    match generation.engine:
        case "transformers":
            return EngineCapabilities(
                name="transformers",
                kinds=frozenset({base, WeightsKind.FULL.value, member}),
                max_adapters=generation.max_adapters,
                counter_noise=True,
            )
        case "vllm":
            return EngineCapabilities(
                name="vllm",
                kinds=frozenset({base, member}),
                max_adapters=generation.max_adapters if policy.weights == "lora" else 1,
                counter_noise=True,
            )
        case "openai":
            return EngineCapabilities(
                name="openai",
                kinds=frozenset({base}),
                max_adapters=0,
                counter_noise=False,
                exact_tokens=False,
            )


def require_engine(generation: GenerationSection) -> str:
    """Check that what the engine needs is installed and set; a word about it, empty where there is nothing to say.

    Raises:
        PreflightError: an extra is not installed, or the endpoint's key is not set; the message says what to do.
    """
    match generation.engine:
        case "transformers":
            return ""
        case "vllm":
            return f"vLLM {require_vllm()}, one process for each rollout worker"
        case "openai":
            if importlib.util.find_spec("aiohttp") is None:
                raise PreflightError(
                    "generation.engine=openai needs aiohttp, which is not installed here; install it with "
                    "`pip install 'coharness-evolution[openai]'`"
                )
            from coharness.policy.generation.endpoint import api_key

            api_key(generation.endpoint)
            return f"{generation.endpoint.model} at {generation.endpoint.url}"
