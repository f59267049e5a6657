"""A double of an engine that judges: says what a function says of each prompt, and writes what another one does.

engine = ScriptedEngine(codec, good=lambda prompt: 2.0 if "because" in prompt else -2.0)
"""

import math
from collections.abc import Callable, Sequence
from typing import final

from coharness.records.episode import StopReason
from coharness.records.errors import WeightsError
from coharness.records.protocols import (
    ChoiceRequest,
    EngineCapabilities,
    Generation,
    GenerationRequest,
    TextCodec,
)


@final
class ScriptedEngine:
    """Implements `records.protocols.JudgingEngine`; keeps what it was asked."""

    def __init__(
        self, codec: TextCodec, *, good: Callable[[str], float], writes: Callable[[str], str] = lambda prompt: ""
    ) -> None:
        """Args:
        codec: Of the base that it stands for.
        good: Prompt -> log-odds of the first choice against the second; NaN makes the call fail.
        writes: Prompt -> completion, without the end token.
        """
        self.asked: list[str] = []
        "Prompts that were read, in order."
        self.is_closed = False
        self._codec, self._good, self._writes = codec, good, writes

    @property
    def capabilities(self) -> EngineCapabilities:
        """It holds any weights."""
        return EngineCapabilities(
            name="scripted", kinds=frozenset({"base", "lora", "full"}), max_adapters=0, counter_noise=True
        )

    @property
    def codec(self) -> TextCodec:
        """As given."""
        return self._codec

    def read(self, requests: Sequence[ChoiceRequest]) -> list[tuple[float, ...]]:
        """Two choices share all of the probability by the script's log-odds."""
        answers: list[tuple[float, ...]] = []
        for request in requests:
            prompt = self._codec.decode(request.prompt_ids)
            self.asked.append(prompt)
            odds = self._good(prompt)
            if not math.isfinite(odds):
                raise WeightsError(f"the script says {odds!r} of {prompt!r}, as damaged weights would")
            answers.append((-math.log1p(math.exp(-odds)), -math.log1p(math.exp(odds))))
        return answers

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """What the script writes, cut to the budget."""
        answers = []
        for request in requests:
            ids = self._codec.encode_completion(self._writes(self._codec.decode(request.prompt_ids)))
            kept = ids[: request.max_new_tokens]
            stop = StopReason.EOS if len(kept) == len(ids) else StopReason.LENGTH
            answers.append(
                Generation(
                    output_ids=kept, logprobs=[0.0] * len(kept), stop_reason=stop, written_by=request.weights.digest
                )
            )
        return answers

    def abort(self) -> None:
        """Nothing is ever in progress."""

    def close(self) -> None:
        """Remembers that it was."""
        self.is_closed = True
