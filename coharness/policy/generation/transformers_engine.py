"""The in-process generation engine: a transformers model into which versions are put in turn.

Owns which versions are in memory and which one is active. Implements `records.protocols.Generator`; a rollout worker drives it.

Invariants
- A version writes only after its digest and its canary agreed with its reference.
- The base's model is read, never changed: versions live in skeletons that share its frozen memory.
- Requests of several versions, temperatures and lengths may be mixed in one call; the answer to one does not depend on the
  others.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from coharness.config.schema import LoraSection
from coharness.policy.bases import LoadedBase
from coharness.policy.canary import canary_logprob
from coharness.policy.codec import BaseCodec
from coharness.policy.generation.agreement import check_base, check_canary, check_kind
from coharness.policy.generation.choices import read_choices
from coharness.policy.generation.decode import Withdrawn, decode
from coharness.policy.training.lora import lora_skeleton
from coharness.policy.training.member_state import Skeleton, full_skeleton
from coharness.policy.weights import read_weights
from coharness.records.policy import WeightsKind, WeightsRef
from coharness.records.protocols import ChoiceRequest, EngineCapabilities, Generation, GenerationRequest


class _Slot:
    """One skeleton and the versions held for it, by digest, the least recently used first."""

    def __init__(self, skeleton: Skeleton, causal_lm: nn.Module) -> None:
        self.skeleton = skeleton
        self.causal_lm = causal_lm
        self.versions: OrderedDict[str, dict[str, nn.Parameter]] = OrderedDict()
        self.canaries: dict[str, float] = {}


@final
class TransformersGenerator:
    """Generates with a base, with full weights, and with LoRA adapters where `lora` gives their shape."""

    def __init__(
        self, base: LoadedBase, run_dir: Path, *, batch_size: int, max_adapters: int, lora: LoraSection | None = None
    ) -> None:
        """Share `base` for reading; nothing is loaded yet.

        Args:
            base: The run's base.
            run_dir: Where the references' folders lie.
            batch_size: Rows decoded together.
            max_adapters: Versions kept in memory, of each kind.
            lora: Shape of the run's adapters; None where members are full weights.
        """
        if batch_size < 1 or max_adapters < 1:
            raise ValueError(f"batch_size={batch_size} and max_adapters={max_adapters} must both be at least 1")
        self._base = base
        self._run_dir = run_dir
        self._batch_size = batch_size
        self._max_adapters = max_adapters
        self._base_canary: float | None = None
        self._makers: dict[WeightsKind, Callable[[], _Slot]] = {WeightsKind.FULL: self._full_slot}
        if lora is not None:
            self._makers[WeightsKind.LORA] = lambda: self._lora_slot(lora)
        self._slots: dict[WeightsKind, _Slot] = {}
        self._aborted = threading.Event()

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do."""
        return EngineCapabilities(
            name="transformers",
            kinds=frozenset({WeightsKind.BASE.value, *(kind.value for kind in self._makers)}),
            max_adapters=self._max_adapters,
            counter_noise=True,
        )

    @property
    def codec(self) -> BaseCodec:
        """The base's text codec."""
        return self._base.codec

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Write all completions, in the order of the requests; each version's rows go together, sorted by prompt length.

        Raises:
            WeightsError: a reference names weights that are missing, damaged, of another base or of a kind this engine does not
                load, that compute otherwise than their publisher's did, or that give non-finite logits.
            ValueError: a prompt is empty or a temperature is negative.
        """
        self._aborted.clear()
        started = time.monotonic()
        by_version: dict[tuple[WeightsKind, str], list[int]] = {}
        for i, request in enumerate(requests):
            by_version.setdefault((request.weights.kind, request.weights.digest), []).append(i)
        answers: dict[int, Generation] = {}
        for (_, digest), rows in by_version.items():
            # A clone and its donor have one digest and two references; each reference is checked, their rows go together.
            for ref in dict.fromkeys(requests[i].weights for i in rows):
                model = self._activate(ref)
            rows.sort(key=lambda i: len(requests[i].prompt_ids))
            for start in range(0, len(rows), self._batch_size):
                part = rows[start : start + self._batch_size]
                written = decode(
                    model,
                    [requests[i] for i in part],
                    eos_id=self.codec.eos_id,
                    max_context=self._base.spec.max_context,
                    withdrawn=self._withdrawn([requests[i] for i in part], started),
                )
                answers.update((i, replace(answer, written_by=digest)) for i, answer in zip(part, written, strict=True))
        return [answers[i] for i in range(len(requests))]

    def read(self, requests: Sequence[ChoiceRequest]) -> list[tuple[float, ...]]:
        """Log-probability of each choice as the next token, at temperature 1, in the order of the requests.

        Raises:
            WeightsError: as `generate`.
            ValueError: a prompt is empty or leaves no room for a token.
        """
        longest = self._base.spec.max_context - 1
        if wrong := [len(r.prompt_ids) for r in requests if not 1 <= len(r.prompt_ids) <= longest]:
            raise ValueError(f"a prompt has {wrong[0]} tokens, expected 1 to {longest}, what the base's context leaves")
        by_version: dict[tuple[WeightsKind, str], list[int]] = {}
        for i, request in enumerate(requests):
            by_version.setdefault((request.weights.kind, request.weights.digest), []).append(i)
        answers: dict[int, tuple[float, ...]] = {}
        for rows in by_version.values():
            for ref in dict.fromkeys(requests[i].weights for i in rows):
                model = self._activate(ref)
            rows.sort(key=lambda i: len(requests[i].prompt_ids))
            for start in range(0, len(rows), self._batch_size):
                part = rows[start : start + self._batch_size]
                found = read_choices(model, [requests[i].prompt_ids for i in part], [requests[i].choices for i in part])
                answers.update(zip(part, found, strict=True))
        return [answers[i] for i in range(len(requests))]

    def abort(self) -> None:
        """Withdraw what is being written; the call in progress returns before its next token."""
        self._aborted.set()

    def close(self) -> None:
        """Nothing was started; versions go with the object."""

    def _withdrawn(self, requests: Sequence[GenerationRequest], started: float) -> Withdrawn:
        until = [math.inf if r.deadline_s is None else started + r.deadline_s for r in requests]
        first = min(until)

        def withdrawn() -> Tensor | None:
            if self._aborted.is_set():
                return torch.ones(len(until), dtype=torch.bool)
            if math.isinf(first) or (now := time.monotonic()) < first:
                return None
            return torch.tensor([now >= limit for limit in until])

        return withdrawn

    def _activate(self, ref: WeightsRef) -> nn.Module:
        """The model with this version's weights in it, loaded and verified if it was not there."""
        if ref.kind is WeightsKind.BASE:
            return self._activate_base(ref)
        check_kind(ref, self.capabilities.kinds)
        slot = self._slots.get(ref.kind)
        if slot is None:
            slot = self._slots[ref.kind] = self._makers[ref.kind]()
        held = slot.versions.get(ref.digest)
        if held is None:
            held = self._load(slot, ref)
        else:
            slot.skeleton.install(held)
        slot.versions.move_to_end(ref.digest)
        check_canary(ref, slot.canaries[ref.digest])
        return slot.causal_lm

    def _activate_base(self, ref: WeightsRef) -> nn.Module:
        check_base(ref, self._base.spec)
        if self._base_canary is None:
            self._base_canary = canary_logprob(self._base.model, self.codec)
        check_canary(ref, self._base_canary)
        return self._base.model

    def _load(self, slot: _Slot, ref: WeightsRef) -> dict[str, nn.Parameter]:
        tensors = read_weights(self._run_dir, ref)
        slot.skeleton.check(tensors, ref.uri)
        version = {name: nn.Parameter(tensor, requires_grad=False) for name, tensor in tensors.items()}
        slot.skeleton.install(version)
        canary = canary_logprob(slot.causal_lm, self.codec)
        check_canary(ref, canary)
        # Room is made only once the newcomer is known to be good.
        while len(slot.versions) >= self._max_adapters:
            gone, _ = slot.versions.popitem(last=False)
            del slot.canaries[gone]
        slot.versions[ref.digest] = version
        slot.canaries[ref.digest] = canary
        return version

    def _full_slot(self) -> _Slot:
        skeleton = full_skeleton(self._base.model)
        return _Slot(skeleton, skeleton.model)

    def _lora_slot(self, lora: LoraSection) -> _Slot:
        skeleton = lora_skeleton(self._base.model, lora)
        # PEFT's wrapper adds nothing to decoding; the model inside it carries the adapters.
        return _Slot(skeleton, skeleton.model.get_base_model())  # type: ignore[operator]
