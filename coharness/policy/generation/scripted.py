"""A generation engine that answers by a function: no weights, no torch, every answer foreseeable.

Owns nothing but its script. Implements `records.protocols.Generator` with a codec of one token a character, so that tests of the
loop, and dry runs, exercise all that stands around an engine at the speed of Python.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, final

from coharness.policy.generation.agreement import check_requests
from coharness.records.episode import StopReason
from coharness.records.errors import WeightsError
from coharness.records.ids import derive_seed
from coharness.records.policy import WeightsKind
from coharness.records.protocols import EngineCapabilities, Generation, GenerationRequest

Script = Callable[[str, int], str]
"""(text of the prompt, seed) -> completion without its end token; must be a pure function."""

_EOS: Final = 0
_LOGPROB: Final = -math.log(2)
"""Every token is said to have been an even bet; a scripted answer has no distribution."""


@final
class CharacterCodec:
    """One token a character, its code point plus one; 0 ends a completion."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return 0x110000 + 1

    @property
    def special_ids(self) -> frozenset[int]:
        """The end token."""
        return frozenset({_EOS})

    @property
    def eos_id(self) -> int:
        """The token that ends a completion."""
        return _EOS

    def encode_prompt(self, text: str) -> list[int]:
        """Code points of `text`, each plus one."""
        return [ord(character) + 1 for character in text]

    def encode_turn(self, text: str) -> list[int]:
        """Code points of a line break and `text`, each plus one."""
        return self.encode_prompt("\n" + text)

    def encode_completion(self, text: str) -> list[int]:
        """Code points of `text`, each plus one, and the end token."""
        return [*self.encode_prompt(text), _EOS]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; end tokens left out."""
        return "".join(chr(i - 1) for i in ids if i != _EOS)


@final
class ScriptedGenerator:
    """Answers every request by a script."""

    def __init__(self, script: Script, known_digests: Collection[str] | None = None) -> None:
        """Answer by `script`.

        Args:
            script: Called with the prompt's text and a seed that depends on the request's seed and position; 0 for a greedy
                request, whose answer depends on its prompt alone.
            known_digests: Weights that it accepts; all where None.
        """
        self._script = script
        self._known = None if known_digests is None else frozenset(known_digests)
        self._codec = CharacterCodec()

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do: it takes any weights and looks at none."""
        return EngineCapabilities(
            name="scripted",
            kinds=frozenset(kind.value for kind in WeightsKind),
            max_adapters=0,
            counter_noise=True,
        )

    @property
    def codec(self) -> CharacterCodec:
        """One token a character."""
        return self._codec

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """The scripted completions, in the order of the requests, cut to their budgets.

        Raises:
            WeightsError: a request names weights that are not known.
            ValueError: a prompt is empty or a temperature is negative.
        """
        return [self._answer(request) for request in requests]

    def abort(self) -> None:
        """Nothing to withdraw: an answer is there as soon as it is asked for."""

    def close(self) -> None:
        """Nothing was started."""

    def _answer(self, request: GenerationRequest) -> Generation:
        if self._known is not None and request.weights.digest not in self._known:
            raise WeightsError(
                f"a request names weights {request.weights.digest!r}, expected one of {', '.join(sorted(self._known))}; "
                "list it in known_digests"
            )
        check_requests([request])
        seed = derive_seed(request.seed, request.position) if request.temperature > 0 else 0
        completion = self._script(self._codec.decode(request.prompt_ids), seed)
        ids = self._codec.encode_completion(completion)[: max(0, request.max_new_tokens)]
        stop = StopReason.EOS if ids and ids[-1] == _EOS else StopReason.LENGTH
        if request.deadline_s is not None and request.deadline_s <= 0:
            ids, stop = [], StopReason.ABORTED
        return Generation(
            output_ids=ids,
            logprobs=[_LOGPROB] * len(ids),
            stop_reason=stop,
            written_by=request.weights.digest,
        )
