"""Which versions a vLLM engine holds: adapters side by side, or one set of full weights at a time.

Invariants
- A version writes only after its digest and its canary agreed with its reference.
- An adapter's name, `<member>-v<N>`, and its number in vLLM are never used for anything else; it is loaded once, never in place.
- vLLM is never let choose what to forget: an adapter leaves by our order before another would push it out.
- The salt of a version's prefix cache is its digest: what one version computed is never read by another.

Driven by `vllm_core`, in the engine's process.
"""

import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from vllm.lora.request import LoRARequest

from coharness.policy.bases import BaseSpec
from coharness.policy.generation.agreement import check_base, check_canary, check_kind
from coharness.policy.generation.vllm_transfer import load_full
from coharness.policy.training.lora import ADAPTER_CONFIG_FILE
from coharness.policy.weights import WEIGHTS_FILE, read_weights
from coharness.records.errors import WeightsError
from coharness.records.policy import WeightsKind, WeightsRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version that may write."""

    digest: str
    "Of the weights that were loaded."
    salt: str
    adapter: LoRARequest | None
    "None where the model's own weights write."


Score = Callable[[Version], float]
"""The canary under a version: log-probability of the canary text, in nats."""


class Versions(Protocol):
    """What an engine holds."""

    @property
    def num_together(self) -> int:
        """Versions that may write in one batch."""
        ...

    def activate(self, ref: WeightsRef) -> Version:
        """The version, loaded and verified if it was not there.

        Raises:
            WeightsError: it is missing, damaged, of another base or kind, or computes otherwise than its publisher's did.
        """
        ...


@final
class AdapterVersions:
    """LoRA adapters around the base, many in one batch."""

    def __init__(
        self,
        engine: Any,
        base: BaseSpec,
        run_dir: Path,
        score: Score,
        *,
        max_adapters: int,
        tolerance: float,
        spell_out_base: bool,
    ) -> None:
        """Nothing is loaded yet.

        Args:
            engine: vLLM's.
            base: The run's base, which the engine's model is.
            run_dir: Where the references' folders lie.
            score: Takes the canary of a version.
            max_adapters: Versions kept.
            tolerance: Largest difference of canaries that rounding may explain.
            spell_out_base: Whether the base writes through an adapter that changes nothing (see `_neutral_adapter`).
        """
        self._engine = engine
        self._base = base
        self._run_dir = run_dir
        self._score = score
        self._max_adapters = max_adapters
        self._tolerance = tolerance
        self._spell_out_base = spell_out_base
        self._held: OrderedDict[tuple[str, str], tuple[Version, float]] = OrderedDict()
        self._last_id = 0
        self._neutral: LoRARequest | None = None
        self._base_canary: float | None = None

    @property
    def num_together(self) -> int:
        """As many as are kept."""
        return self._max_adapters

    def activate(self, ref: WeightsRef) -> Version:
        """The version, loaded and verified if it was not there."""
        check_kind(ref, {WeightsKind.BASE.value, WeightsKind.LORA.value})
        if ref.kind is WeightsKind.BASE:
            check_base(ref, self._base)
            version = Version(digest=ref.digest, salt=ref.digest, adapter=self._neutral)
            if self._base_canary is None:
                self._base_canary = self._score(version)
            check_canary(ref, self._base_canary, self._tolerance)
            return version
        key = (ref.uri, ref.digest)
        if key not in self._held:
            self._held[key] = self._load(ref)
        self._held.move_to_end(key)
        version, canary = self._held[key]
        check_canary(ref, canary, self._tolerance)
        return version

    def _load(self, ref: WeightsRef) -> tuple[Version, float]:
        # The digest is that of the bytes vLLM will read: a published folder never changes.
        tensors = read_weights(self._run_dir, ref)
        folder = (self._run_dir / ref.uri).resolve()
        if self._spell_out_base and self._neutral is None:
            self._neutral, self._base_canary = self._neutral_adapter(tensors, folder), None
        while len(self._held) >= self._max_adapters:
            _, (gone, _) = self._held.popitem(last=False)
            if gone.adapter is not None:
                self._engine.remove_lora(gone.adapter.lora_int_id)
        adapter = self._add(_name(ref), folder)
        version = Version(digest=ref.digest, salt=ref.digest, adapter=adapter)
        try:
            canary = self._score(version)
            check_canary(ref, canary, self._tolerance)
        except BaseException:
            self._engine.remove_lora(adapter.lora_int_id)
            raise
        return version, canary

    def _add(self, name: str, folder: Path) -> LoRARequest:
        self._last_id += 1
        adapter = LoRARequest(name, self._last_id, str(folder))
        try:
            taken = self._engine.add_lora(adapter)
        except (ValueError, OSError) as error:
            raise WeightsError(f"vLLM cannot load the adapter {name} from {folder}: {error}") from error
        if not taken:
            raise WeightsError(f"vLLM did not take the adapter {name} from {folder}; the engine's log says why")
        return adapter

    def _neutral_adapter(self, tensors: dict[str, Tensor], folder: Path) -> LoRARequest:
        """An adapter that changes nothing, in the shape of another.

        vLLM's kernels for CPUs (0.32) take the number of a row without an adapter, -1, for an index: once all slots are in use,
        such rows are written by the adapter in the last one. With an adapter of its own, no row of the base is without.
        """
        made = Path(tempfile.mkdtemp(prefix="coharness-base-"))
        zeros = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        try:
            save_file(zeros, made / WEIGHTS_FILE[WeightsKind.LORA])
            shutil.copy(folder / ADAPTER_CONFIG_FILE, made)
            adapter = self._add("base", made)
        except OSError as error:
            raise WeightsError(f"cannot write an adapter like {folder} into {made}: {error}") from error
        finally:
            shutil.rmtree(made)
        return adapter


@final
class FullVersions:
    """Full weights, one set in the model at a time; another is loaded over it."""

    def __init__(self, engine: Any, base: BaseSpec, run_dir: Path, score: Score, *, tolerance: float) -> None:
        self._engine = engine
        self._base = base
        self._run_dir = run_dir
        self._score = score
        self._tolerance = tolerance
        self._active = base.digest
        self._canary: float | None = None
        engine.collective_rpc("init_weight_transfer_engine", args=({},))

    @property
    def num_together(self) -> int:
        """One."""
        return 1

    def activate(self, ref: WeightsRef) -> Version:
        """The version, loaded over the one that was there, and verified."""
        check_kind(ref, {WeightsKind.BASE.value, WeightsKind.FULL.value})
        if ref.kind is WeightsKind.BASE:
            check_base(ref, self._base)
        version = Version(digest=ref.digest, salt=ref.digest, adapter=None)
        if self._active != ref.digest:
            # Verified while the old ones are still in place: a bad folder leaves the engine as it was.
            tensors = self._read(ref)
            self._active, self._canary = "", None
            load_full(self._engine, tensors, ref.digest)
            self._active = ref.digest
        if self._canary is None:
            self._canary = self._score(version)
        check_canary(ref, self._canary, self._tolerance)
        return version

    def _read(self, ref: WeightsRef) -> dict[str, Tensor]:
        if ref.kind is WeightsKind.FULL:
            return read_weights(self._run_dir, ref)
        parts = [load_file(path) for path in sorted(self._base.path.glob("*.safetensors"))]
        return {name: tensor for part in parts for name, tensor in part.items()}


def _name(ref: WeightsRef) -> str:
    """`weights/p0/v3` is `p0-v3`."""
    return "-".join(ref.uri.split("/")[-2:])
