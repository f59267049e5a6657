"""The vLLM generation engine, as the loop sees it: a process of its own behind `records.protocols.Generator`.

Owns the engine's process. The engine holds nothing that a new process could not load again from the run's folders, so one that
died or fell silent is ended by its id and replaced at the next call; the call itself fails as an infrastructure failure.

vLLM's `LLMEngine` is stepped by that process itself rather than through `AsyncLLM`: one process instead of three, deadlines
looked at before every step, and a call's requests always batched alike. Nothing is lost by it, since a rollout worker asks for
one batch at a time.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

from coharness.config.generation import GenerationSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import BaseSpec
from coharness.policy.codec import BaseCodec, open_codec
from coharness.policy.generation.agreement import check_requests
from coharness.policy.generation.channel import ChannelClosed, ChannelSilent
from coharness.policy.generation.declared import declared_capabilities
from coharness.policy.generation.engine_process import EngineProcess
from coharness.policy.generation.vllm_extra import require_vllm
from coharness.policy.generation.vllm_messages import (
    Abort,
    Alive,
    Open,
    Order,
    Ready,
    Refused,
    Report,
    Write,
    Written,
    order_to_json,
    report_from_json,
)
from coharness.policy.threads import THREAD_VARIABLES
from coharness.records.errors import Boundary, BoundaryError, WeightsError
from coharness.records.protocols import EngineCapabilities, Generation, GenerationRequest

_MODULE: Final = "coharness.policy.generation.vllm_process"
_SEND_S: Final = 30.0
_GRACE_S: Final = 2.0
"""For a process that was hung up on; it ends itself at once unless it cannot."""


@final
class VllmGenerator:
    """Generates with a base and with LoRA adapters, or with full weights, in a process of its own."""

    def __init__(
        self,
        base: BaseSpec,
        run_dir: Path,
        policy: PolicySection,
        section: GenerationSection,
        *,
        num_threads: int,
        module: str | None = None,
    ) -> None:
        """Start the engine and wait until it is up.

        Args:
            base: The run's base.
            run_dir: Where the references' folders lie.
            policy: What the members are.
            section: The engine's settings.
            num_threads: Threads that the engine computes with on CPUs.
            module: Entry point of another process that speaks `vllm_messages`, for tests; vLLM is not looked for then.

        Raises:
            PreflightError: vLLM is not installed.
            BoundaryError: GENERATION where the engine did not start; the message quotes its log.
        """
        if module is None:
            require_vllm()
        self._module = module or _MODULE
        self._codec = open_codec(base.path, is_chat=base.is_chat)
        self._section = section.vllm
        self._env = _environment(num_threads, eager=section.vllm.eager)
        self._log = run_dir / "logs" / f"vllm-{os.getpid()}.log"
        self._capabilities = declared_capabilities(policy, section)
        self._order = Open(
            base=str(base.path),
            run_dir=str(run_dir.resolve()),
            dtype=policy.dtype,
            max_context=min(policy.max_context, base.max_context),
            batch_size=section.batch_size,
            lora_rank=policy.lora.rank if policy.weights == "lora" else 0,
            max_adapters=section.max_adapters,
            adapters_per_batch=section.vllm.adapters_per_batch,
            kv_cache_mib=section.vllm.kv_cache_mib,
            eager=section.vllm.eager,
        )
        self._process: EngineProcess | None = None
        self._start()

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do."""
        return self._capabilities

    @property
    def codec(self) -> BaseCodec:
        """The base's text codec."""
        return self._codec

    @property
    def pid(self) -> int | None:
        """Id of the engine's process; None where there is none now."""
        return None if self._process is None else self._process.pid

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Write all completions, in the order of the requests.

        Raises:
            WeightsError: a reference names weights that are missing, damaged, of another base or of a kind this engine does not
                load, that compute otherwise than their publisher's did, or that give non-finite logits.
            ValueError: a prompt is empty or a temperature is negative.
            BoundaryError: GENERATION where the engine's process died or fell silent; the next call starts another.
        """
        check_requests(requests)
        if not requests:
            return []
        if self._process is None or not self._process.is_alive():
            self._end()
            self._start()
        report = self._ask(Write(requests=tuple(requests)), self._section.stall_s)
        match report:
            case Written(answers=answers):
                return list(answers)
            case Refused(error="weights", message=message):
                raise WeightsError(message)
            case Refused(error="value", message=message):
                raise ValueError(message)
            case _:
                raise self._failed(f"the vLLM engine failed: {report}")

    def abort(self) -> None:
        """Withdraw what is being written; the call in progress returns within a step."""
        process = self._process
        if process is not None:
            try:
                process.channel.send(order_to_json(Abort()), _SEND_S)
            except (ChannelClosed, ChannelSilent):
                return  # The call in progress finds out for itself, and says so.

    def close(self) -> None:
        """End the engine's process by its id."""
        self._end()

    def _start(self) -> None:
        self._process = EngineProcess(self._module, self._env, self._log)
        report = self._ask(self._order, self._section.start_s)
        if not isinstance(report, Ready):
            raise self._failed(f"the vLLM engine did not start: {report}")

    def _ask(self, order: Order, silence_s: float) -> Report:
        """Send an order and wait for its report; a sign of life starts the wait anew."""
        process = self._process
        assert process is not None
        try:
            process.channel.send(order_to_json(order), _SEND_S)
            while True:
                report = report_from_json(process.channel.receive(silence_s))
                if not isinstance(report, Alive):
                    return report
        except ChannelClosed as error:
            raise self._failed("the vLLM engine's process died") from error
        except ChannelSilent as error:
            raise self._failed(f"the vLLM engine gave no sign of life for {silence_s:g} s") from error
        except BaseException:
            # Interrupted between order and report: what comes next on the channel would answer the wrong question.
            self._end()
            raise

    def _failed(self, what: str) -> BoundaryError:
        last = "" if self._process is None else self._process.last_words()
        self._end()
        return BoundaryError(Boundary.GENERATION, f"{what}; the end of {self._log}: {last or '(empty)'}")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end(_GRACE_S)


def _environment(num_threads: int, *, eager: bool) -> dict[str, Any]:
    environment = {name: str(num_threads) for name in THREAD_VARIABLES} | {
        # Left to itself, vLLM binds its threads to cores, and two engines to the same ones.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if eager:
        # The sampler compiles a helper at its first use otherwise, 10 to 30 s of one core for nothing.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment
