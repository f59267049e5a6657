"""The factors of several adapters, module by module, after everything that cannot be merged has been refused.

Driven by the two ways of merging adapters, `lora` and `lora_rules`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from coharness.evolution.merging.lora_spec import LoraSpec
from coharness.evolution.merging.maps import TensorMap
from coharness.evolution.merging.preflight import check_finite

A_SUFFIX: Final = ".lora_A.weight"
B_SUFFIX: Final = ".lora_B.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFactors:
    """One module as the parents that adapt it have it."""

    module: str
    parents: tuple[int, ...]
    "Which parents adapt it; to the others it is unchanged."
    a: tuple[Tensor, ...]
    "Each [rank, in]."
    b: tuple[Tensor, ...]
    "Each [out, rank]."
    scales: tuple[float, ...]
    "delta_W = scale * B @ A."


def each_module(adapters: Sequence[tuple[LoraSpec, TensorMap]]) -> Iterator[ModuleFactors]:
    """The modules that any parent adapts, in sorted order, checked.

    Raises:
        ValueError: there is no adapter; a key belongs to DoRA, a bias, modules_to_save or another kind of layer; the parents
            disagree on a module's shape, dtype or fan_in_fan_out; or a factor is not finite. Before the first module but for
            the last three.
    """
    if not adapters:
        raise ValueError("nothing to merge: got 0 adapters, expected at least one")
    specs = [spec for spec, _ in adapters]
    for i, spec in enumerate(specs):
        if spec.fan_in_fan_out != specs[0].fan_in_fan_out:
            raise ValueError(
                f"adapter {i} has fan_in_fan_out={spec.fan_in_fan_out}; expected {specs[0].fan_in_fan_out} as in adapter 0 "
                f"(are they adapters of one base?)"
            )
    modules_of = [_modules(f"adapter {i}", *adapter) for i, adapter in enumerate(adapters)]
    modules = sorted(set().union(*modules_of))
    _check_targets(specs, modules_of, modules)
    for module in modules:
        parents = tuple(i for i, owned in enumerate(modules_of) if module in owned)
        factors = [(adapters[i][1][module + A_SUFFIX], adapters[i][1][module + B_SUFFIX]) for i in parents]
        _check_factors(module, parents, [specs[i] for i in parents], factors)
        yield ModuleFactors(
            module=module,
            parents=parents,
            a=tuple(a.detach() for a, _ in factors),
            b=tuple(b.detach() for _, b in factors),
            scales=tuple(specs[i].scale_of(module) for i in parents),
        )


def adapted_modules(tensors: TensorMap) -> list[str]:
    """Paths of the modules whose A factor a state dict holds, sorted."""
    return sorted(key.removesuffix(A_SUFFIX) for key in tensors if key.endswith(A_SUFFIX))


def _modules(label: str, spec: LoraSpec, tensors: TensorMap) -> set[str]:
    """Paths of the modules this adapter has both factors for; refuses every key that is not a plain LoRA factor."""
    for key in sorted(tensors):
        if not key.endswith((A_SUFFIX, B_SUFFIX)):
            raise ValueError(f"{label} has key {key!r}: {_why_refused(key)}")
    paths = {
        suffix: {key.removesuffix(suffix) for key in tensors if key.endswith(suffix)} for suffix in (A_SUFFIX, B_SUFFIX)
    }
    for module in sorted(paths[A_SUFFIX] ^ paths[B_SUFFIX]):
        lacking = B_SUFFIX if module in paths[A_SUFFIX] else A_SUFFIX
        raise ValueError(f"{label} lacks key {module + lacking!r}; expected both factors of every adapted module")
    for module in sorted(paths[A_SUFFIX]):
        if not spec.targets(module):
            raise ValueError(
                f"{label} has key {module + A_SUFFIX!r}, but its spec targets {spec.target_modules}; expected a spec that "
                f"names every adapted module"
            )
    return paths[A_SUFFIX]


def _why_refused(key: str) -> str:
    parts = key.split(".")
    if any(part.startswith("lora_magnitude_vector") for part in parts):
        return "DoRA magnitudes are not linear in the weights; expected plain LoRA factors (merge full weights instead)"
    if any(part.startswith("lora_embedding_") for part in parts):
        return "adapters on embeddings are not supported; expected plain LoRA factors on linear layers"
    if parts[-1] == "bias":
        return "biases are not part of a product of factors; expected adapters trained with bias='none'"
    if {"lora_A", "lora_B"} & set(parts):
        return "expected '<module>.lora_A.weight' without an adapter name (as peft.get_peft_model_state_dict gives it)"
    return "not a LoRA factor (modules_to_save?); expected only '<module>.lora_A.weight' and '<module>.lora_B.weight'"


def _check_targets(specs: Sequence[LoraSpec], modules_of: Sequence[set[str]], modules: Sequence[str]) -> None:
    for i, (spec, owned) in enumerate(zip(specs, modules_of, strict=True)):
        for module in modules:
            if module not in owned and spec.targets(module):
                raise ValueError(
                    f"adapter {i} lacks key {module + A_SUFFIX!r} although its spec targets {spec.target_modules}; expected the "
                    f"factors of every targeted module (a partial save, or adapters of different bases?)"
                )


def _check_factors(
    module: str, parents: Sequence[int], specs: Sequence[LoraSpec], factors: Sequence[tuple[Tensor, Tensor]]
) -> None:
    first_a, first_b = factors[0]
    for i, spec, (a, b) in zip(parents, specs, factors, strict=True):
        label, rank = f"adapter {i}", spec.rank_of(module)
        widths: Mapping[str, tuple[Tensor, tuple[int, int]]] = {
            A_SUFFIX: (a, (rank, first_a.shape[-1])),
            B_SUFFIX: (b, (first_b.shape[0], rank)),
        }
        for suffix, (tensor, expected) in widths.items():
            name = module + suffix
            if tuple(tensor.shape) != expected:
                raise ValueError(
                    f"tensor {name!r} of {label} has shape {list(tensor.shape)}; expected {list(expected)} from its rank "
                    f"{rank} and adapter {parents[0]} (a rank_pattern, a convolution, or another base?)"
                )
            if tensor.dtype != first_a.dtype or not tensor.is_floating_point():
                raise ValueError(
                    f"tensor {name!r} of {label} has dtype {tensor.dtype}; expected one floating dtype throughout, "
                    f"{first_a.dtype} as in adapter {parents[0]} (cast before merging)"
                )
            check_finite(name, label, tensor)
