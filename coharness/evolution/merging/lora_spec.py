"""What gives an adapter's tensors their meaning, brought to one form however it was written.

PEFT scales by alpha / rank or alpha / sqrt(rank), for all modules or by patterns over their names. A `LoraSpec` answers for each
module with one rank and one scale, so that everything behind it sees delta_W = scale * B @ A and nothing else. What is not
of this form (DoRA, biases, whole modules beside the adapter, adapters whose start changed the base) is refused here, by name.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

_Value = TypeVar("_Value", int, float)

_REFUSED: Final[Mapping[str, str]] = {
    "use_dora": "DoRA magnitudes are not linear in the weights",
    "modules_to_save": "whole modules are saved beside the adapter",
    "lora_bias": "biases of the factors are not part of their product",
    "layer_replication": "layers are repeated, so one adapter acts on several",
    "target_parameters": "parameters are adapted that belong to no linear layer",
    "trainable_token_indices": "rows of the embedding are trained beside the adapter",
    "alora_invocation_tokens": "the adapter acts on a part of the sequence only",
    "megatron_config": "the adapter is cut over several processes",
}
"""Fields of PEFT's config that have to be empty, and what they mean where they are not."""

_CHANGED_BASE: Final = ("pissa", "olora", "corda", "loftq")
"""Ways of starting an adapter that subtract it from the base: the parents then have different bases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    """What gives an adapter's tensors their meaning: delta_W = scale * B @ A on each target module."""

    rank: int
    alpha: float
    use_rslora: bool = False
    "True: scale = alpha / sqrt(rank) (Kalajdzievski, 2023); False: alpha / rank (Hu et al., 2021)."
    target_modules: tuple[str, ...]
    "Module names; a module is targeted when its path equals one or ends in '.' and one, as in PEFT."
    fan_in_fan_out: bool = False
    "The base layer stores its weight as [in, out]; the factors keep their shapes."
    rank_pattern: tuple[tuple[str, int], ...] = ()
    "(pattern, rank): modules whose path ends in what the pattern matches, whole names, have that rank; the first match counts."
    alpha_pattern: tuple[tuple[str, float], ...] = ()
    "(pattern, alpha), likewise."

    def __post_init__(self) -> None:
        for rank in (self.rank, *(rank for _, rank in self.rank_pattern)):
            if rank < 1:
                raise ValueError(f"LoRA rank is {rank}; expected at least 1")
        for alpha in (self.alpha, *(alpha for _, alpha in self.alpha_pattern)):
            if not (math.isfinite(alpha) and alpha > 0):
                raise ValueError(
                    f"LoRA alpha is {alpha}; expected a finite number above 0 (with 0 the adapter does nothing)"
                )
        if not self.target_modules or len(set(self.target_modules)) != len(self.target_modules):
            raise ValueError(f"LoRA target_modules is {self.target_modules}; expected at least one name and none twice")

    @property
    def scale(self) -> float:
        """The factor in front of B @ A where no pattern says otherwise."""
        return _scale(self.alpha, self.rank, use_rslora=self.use_rslora)

    def rank_of(self, module: str) -> int:
        """The rank of the adapter on the module at this path."""
        return _by_pattern(self.rank_pattern, module, self.rank)

    def scale_of(self, module: str) -> float:
        """The factor in front of B @ A on the module at this path."""
        alpha = _by_pattern(self.alpha_pattern, module, self.alpha)
        return _scale(alpha, self.rank_of(module), use_rslora=self.use_rslora)

    def targets(self, module: str) -> bool:
        """Whether the adapter is expected to have factors for the module at this path."""
        return any(module == target or module.endswith(f".{target}") for target in self.target_modules)


def spec_from_peft(config: Mapping[str, Any], modules: Sequence[str]) -> LoraSpec:
    """The spec that an `adapter_config.json` of PEFT describes.

    Args:
        config: Its JSON object.
        modules: Paths of the modules that the adapter has factors for; they stand for a target that is a regular expression.

    Raises:
        ValueError: it is no plain LoRA; the field and what it means are named.
    """
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise ValueError(f"peft_type is {kind}; expected LORA")
    for name, meaning in _REFUSED.items():
        if config.get(name):
            raise ValueError(
                f"{name} is {config[name]!r}: {meaning}; expected a plain LoRA adapter (merge full weights instead)"
            )
    if config.get("bias", "none") != "none":
        raise ValueError(f"bias is {config['bias']!r}: biases of the base are trained as well; expected 'none'")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASE):
        raise ValueError(
            f"init_lora_weights is {start!r}, which changes the base; expected an adapter of the base as it is "
            f"(convert it with PEFT's path_initial_model_for_weight_conversion first)"
        )
    targets = config.get("target_modules")
    return LoraSpec(
        rank=int(config["r"]),
        alpha=float(config["lora_alpha"]),
        use_rslora=bool(config.get("use_rslora", False)),
        target_modules=tuple(sorted(modules if targets is None or isinstance(targets, str) else targets)),
        fan_in_fan_out=bool(config.get("fan_in_fan_out", False)),
        rank_pattern=tuple((key, int(rank)) for key, rank in (config.get("rank_pattern") or {}).items()),
        alpha_pattern=tuple((key, float(alpha)) for key, alpha in (config.get("alpha_pattern") or {}).items()),
    )


def _by_pattern(patterns: Sequence[tuple[str, _Value]], module: str, otherwise: _Value) -> _Value:
    return next((value for key, value in patterns if re.match(rf"(.*\.)?({key})$", module)), otherwise)


def _scale(alpha: float, rank: int, *, use_rslora: bool) -> float:
    return alpha / (math.sqrt(rank) if use_rslora else rank)
