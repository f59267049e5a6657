"""Full weights into a live vLLM engine, through vLLM's weight-transfer lifecycle: start, update, finish.

vLLM's own backends move tensors between GPUs. This one takes them from the memory of the process that the engine lives in, where
they were read and verified, and so serves on CPUs too. Imported by the engine's process alone, since it needs vLLM.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor, nn
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

BACKEND: Final = "coharness_memory"


@dataclass
class MemoryInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing to set up."""


@dataclass
class MemoryUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """What to load."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    "All weights, under the names that transformers gives them."


class MemoryTransfer(WeightTransferEngine[MemoryInit, MemoryUpdate]):  # type: ignore[misc]
    """Loads tensors of this process into the model of its worker."""

    init_info_cls = MemoryInit
    update_info_cls = MemoryUpdate

    def init_transfer_engine(self, init_info: MemoryInit) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        """Take the layers apart, to the shapes that a checkpoint has."""
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: MemoryUpdate) -> None:
        """Load all weights."""
        self.model.load_weights(list(update_info.tensors.items()))

    def finish_weight_update(self) -> None:
        """Put the layers back together, as the kernels want them."""
        finalize_layerwise_reload(self.model, self.model_config)
        _repack_tied_head(self.model)

    def shutdown(self) -> None:
        """Nothing is held between updates."""


def register() -> None:
    """Make the backend known to vLLM in this process; once."""
    WeightTransferEngineFactory.register_engine(BACKEND, MemoryTransfer)


def load_full(engine: Any, tensors: dict[str, Tensor], version: str) -> None:
    """Put these weights into the engine's model, under the name `version`; an error leaves an engine that cannot go on."""
    engine.collective_rpc("start_weight_update")
    engine.collective_rpc("update_weights", args=({"tensors": tensors},))
    engine.collective_rpc("finish_weight_update")
    engine.set_weight_version(version)


def _repack_tied_head(model: nn.Module) -> None:
    """Pack the output layer again where it is the embedding.

    On CPUs it computes with a packed copy, which a layer-wise reload leaves as it was (vLLM 0.32): the embedding would be new and
    the logits old, without an error. The canary would tell; this makes it right.
    """
    head: Any = getattr(model, "lm_head", None)
    embedding: Any = getattr(getattr(model, "model", None), "embed_tokens", None)
    if head is None or embedding is None or not getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        return
    head.weight = embedding.weight
    head.quant_method.process_weights_after_loading(head)
