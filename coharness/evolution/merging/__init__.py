"""Merging: from several parents' weights, one child's. Rules work on name -> tensor maps; LoRA adapters have their own.

One rule a file, each a pure function `merge(tensors, weights, base=None, *, ...)`, listed in the explicit table `RULES`. A new
rule is a new file and a new line below; nothing registers itself. Adapters are merged by `merging.lora.merge_lora`, in product
space, because averaging their factors is not averaging what they do.

Importing this package loads torch: users import it where they merge, never at the top of a light module.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from torch import Tensor

from coharness.evolution.merging.linear import linear
from coharness.evolution.merging.lora import LoraMerge, LoraSpec, merge_lora
from coharness.evolution.merging.maps import (
    DEFAULT_CHUNK_BYTES,
    LazyTensorMap,
    TensorMap,
    load_map,
    map_digest,
    open_map,
    save_map,
)
from coharness.evolution.merging.preflight import check_mergeable, check_weights
from coharness.evolution.merging.task_arithmetic import task_arithmetic

__all__ = [
    "DEFAULT_CHUNK_BYTES",
    "RULES",
    "LazyTensorMap",
    "LoraMerge",
    "LoraSpec",
    "MergeFunction",
    "MergeRule",
    "TensorMap",
    "check_mergeable",
    "check_weights",
    "linear",
    "load_map",
    "map_digest",
    "merge_lora",
    "open_map",
    "save_map",
    "task_arithmetic",
]


class MergeFunction(Protocol):
    """What every rule can be called with; a rule's own parameters are keyword-only and have defaults."""

    def __call__(
        self,
        tensors: Sequence[TensorMap],
        weights: Sequence[float],
        base: TensorMap | None = None,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    ) -> dict[str, Tensor]:
        """The merged map, in the parents' names, shapes and dtypes; ValueError if preflight refuses the inputs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """One way to merge name -> tensor maps, as listed in `RULES`."""

    name: str
    needs_base: bool
    "True: `base` must be a map. False: it must be None."
    merge: MergeFunction
    description: str
    source: str
    "Author and year of the method."


RULES: Final[dict[str, MergeRule]] = {
    "linear": MergeRule(
        name="linear",
        needs_base=False,
        merge=linear,
        description="Weighted average of the parents' weights.",
        source="Wortsman et al., 2022 (model soups)",
    ),
    "task_arithmetic": MergeRule(
        name="task_arithmetic",
        needs_base=True,
        merge=task_arithmetic,
        description="The base plus a scaled, weighted sum of the parents' changes to it.",
        source="Ilharco et al., 2023",
    ),
}
