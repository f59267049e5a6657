"""Merging: from several parents' weights, one child's. Rules work on name -> tensor maps; LoRA adapters have their own way.

One rule a file, each a pure function `merge(tensors, weights, base=None, *, ...)`, listed in the explicit table `RULES` with
what it needs and where it comes from. Adapters are merged by `merge_lora`, in product space, because averaging their factors
is not averaging what they do; `merge_lora_by` takes any rule to them. Files are merged by `files.merge_files`, tensor by tensor.

Importing this package loads torch: users import it where they merge, never at the top of a light module.
"""

from coharness.evolution.merging.linear import linear
from coharness.evolution.merging.lora import LoraMerge, RankPolicy, merge_lora
from coharness.evolution.merging.lora_rules import LoraRuleMerge, Space, merge_lora_by
from coharness.evolution.merging.lora_spec import LoraSpec
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
from coharness.evolution.merging.soup import GreedySoup, greedy_soup
from coharness.evolution.merging.table import RULES, BaseUse, MergeFunction, MergeRule, Statistics
from coharness.evolution.merging.task_arithmetic import task_arithmetic

__all__ = [
    "DEFAULT_CHUNK_BYTES",
    "RULES",
    "BaseUse",
    "GreedySoup",
    "LazyTensorMap",
    "LoraMerge",
    "LoraRuleMerge",
    "LoraSpec",
    "MergeFunction",
    "MergeRule",
    "RankPolicy",
    "Space",
    "Statistics",
    "TensorMap",
    "check_mergeable",
    "check_weights",
    "greedy_soup",
    "linear",
    "load_map",
    "map_digest",
    "merge_lora",
    "merge_lora_by",
    "open_map",
    "save_map",
    "task_arithmetic",
]
