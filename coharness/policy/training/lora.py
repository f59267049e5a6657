"""LoRA members: the skeleton with adapters around the shared base, a fresh adapter, and the config that PEFT reads.

Invariants: one base is shared by all members, only adapter tensors are trained and published; published names and config are
PEFT's own, so that PEFT and vLLM load a version's folder as it is. Driven by `torch_trainer`.
"""

import json
import math
from collections.abc import Mapping
from typing import Final

import peft
import torch
from torch import Tensor, nn

from coharness.config.schema import LoraSection
from coharness.policy.training.member_state import Skeleton, copy_structure
from coharness.records.errors import PreflightError

ADAPTER_CONFIG_FILE: Final = "adapter_config.json"
_ADAPTER: Final = "default"


def lora_skeleton(base: nn.Module, section: LoraSection) -> Skeleton:
    """A skeleton whose adapter tensors are trained; everything else shares the base's memory.

    Raises:
        PreflightError: the base has no linear layer of one of the target names.
    """
    model = copy_structure(base)
    linears = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if absent := sorted(set(section.target_modules) - linears):
        raise PreflightError(
            f"policy.lora.target_modules names {', '.join(absent)}, which this base does not have; "
            f"expected some of {', '.join(sorted(linears))}"
        )
    # PEFT draws initial adapters from the global generator; members bring their own.
    with torch.random.fork_rng(devices=[]):
        adapted = peft.get_peft_model(model, _config(section, None))
    names = {name.replace(f".{_ADAPTER}.", "."): name for name, p in adapted.named_parameters() if p.requires_grad}
    return Skeleton(adapted, names)


def fresh_adapter(shapes: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """An adapter that changes nothing yet: A uniform in ±1/sqrt(fan-in), B zero (Hu et al., 2021, as PEFT scales it).

    Args:
        shapes: Published names with tensors of the right shape and type.
        seed: Of the member.
    """
    generator = torch.Generator().manual_seed(seed)
    adapter: dict[str, Tensor] = {}
    for name in sorted(shapes):
        like = shapes[name]
        fresh = torch.zeros(like.shape)
        if ".lora_A." in name:
            bound = 1 / math.sqrt(like.shape[1])
            fresh.uniform_(-bound, bound, generator=generator)
        adapter[name] = fresh.to(like.dtype)
    return adapter


def adapter_config(section: LoraSection, base: str) -> str:
    """The text of `adapter_config.json`; `base` is where PEFT finds the base model."""
    values = _config(section, base).to_dict()
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in values.items()}
    return json.dumps({**plain, "inference_mode": True}, indent=2, sort_keys=True, default=str) + "\n"


def _config(section: LoraSection, base: str | None) -> peft.LoraConfig:
    return peft.LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        use_rslora=section.use_rslora,
        target_modules=list(section.target_modules),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
