"""Merging what lies on disk as others write it: files, model folders (sharded ones too), and PEFT adapter folders.

A merge of folders is checked on their configs first, so that a refusal names a field a person knows (`vocab_size`) instead of
the shape of a tensor; tokenizers have to be the same to the byte. Everything of the first parent that is not weights is copied
beside the result, and `merge.json` says how it was made.

Invariants: the output folder appears whole or not at all; nothing is unpickled. Driven by `coharness merge`.
"""

import hashlib
import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from coharness.evolution.merging.files import check_files, merge_files, read_header
from coharness.evolution.merging.lora import RankPolicy
from coharness.evolution.merging.lora_factors import adapted_modules
from coharness.evolution.merging.lora_rules import Space, merge_lora_by
from coharness.evolution.merging.lora_spec import LoraSpec, spec_from_peft
from coharness.evolution.merging.maps import load_map, save_map
from coharness.evolution.merging.table import RULES, MergeRule, Statistics
from coharness.records.errors import ConfigError, WeightsError
from coharness.records.ids import content_hash

MODEL_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
ADAPTER_FILE: Final = "adapter_model.safetensors"
ADAPTER_CONFIG: Final = "adapter_config.json"
RECIPE_FILE: Final = "merge.json"

_SAME_CONFIG: Final = (
    "model_type",
    "architectures",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
)
_SAME_FILES: Final = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model")
_NOT_COPIED: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


class Kind(StrEnum):
    """What a path holds."""

    FILE = "file"
    "One safetensors file."
    MODEL = "model"
    "A folder with model.safetensors or its shards."
    ADAPTER = "adapter"
    "A folder with a PEFT adapter."


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """A merge of paths that passed its preflight."""

    rule: MergeRule
    kind: Kind
    parents: tuple[Path, ...]
    weights: tuple[float, ...]
    base: Path | None
    out: Path
    settings: Mapping[str, Any]
    statistics: tuple[Path, ...] = ()
    space: Space | None = None
    "Where an adapter's changes are seen; the rule's own choice where None."
    policy: RankPolicy = field(default_factory=RankPolicy)
    "The rank of a merged adapter."
    shards: tuple[str, ...] = ()
    "Names of the weight files, the first parent's."

    @property
    def recipe(self) -> dict[str, Any]:
        """How the result is made, as JSON values; the same for parents in any order but for their list."""
        return {
            "rule": self.rule.name,
            "source": self.rule.source,
            "settings": {**self.rule.settings, **self.settings},
            "parents": [str(path) for path in self.parents],
            "weights": list(self.weights),
            "base": None if self.base is None else str(self.base),
            "space": None if self.space is None else self.space.value,
        }

    @property
    def num_tensors(self) -> int:
        """Tensors of a parent."""
        return sum(len(read_header(_weight_file(self.parents[0], self.kind, shard))) for shard in self.shards)


def plan_merge(
    rule: str,
    parents: Sequence[Path],
    out: Path,
    *,
    weights: Sequence[float] | None = None,
    base: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    statistics: Sequence[Path] = (),
    space: Space | str | None = None,
    policy: RankPolicy | None = None,
) -> MergePlan:
    """Check all that can be told without reading weights.

    Args:
        rule: Its name in `RULES`.
        parents: Files, model folders or adapter folders, all of one kind.
        out: What to write; must not exist yet.
        weights: One a parent; equal ones where None.
        base: Of the parents' kind, where the rule takes one; an adapter's base is the adapter that changes nothing.
        settings: The rule's own, by name.
        statistics: A file a parent, where the rule needs them.
        space: For adapters, where the rule sees their changes.
        policy: For adapters, the rank of the result.

    Raises:
        ConfigError: what was asked for cannot be: no such rule, setting or path, kinds that differ, parents that do not fit.
        WeightsError: a file is damaged.
    """
    if rule not in RULES:
        raise ConfigError(f"there is no merge rule {rule!r}; there are {', '.join(RULES)}")
    found, given = RULES[rule], dict(settings or {})
    try:
        found.check_settings(given)
        found.check_count(len(parents))
        used = [1.0] * len(parents) if weights is None else list(weights)
        if len(used) != len(parents):
            raise ValueError(f"got {len(used)} weights for {len(parents)} parents; expected one weight for each parent")
        if out.exists():
            raise ValueError(f"{out} exists already; name a new one, so that nothing is overwritten")
        kinds = [kind_of(path) for path in parents]
        for path, kind in zip(parents, kinds, strict=True):
            if kind is not kinds[0]:
                raise ValueError(f"{path} holds a {kind}, {parents[0]} a {kinds[0]}; expected parents of one kind")
        _check_base(found, kinds[0], base)
        if found.statistics is not Statistics.NONE and len(statistics) != len(parents):
            raise ValueError(
                f"{rule} needs {found.statistics} statistics, got {len(statistics)} files for {len(parents)} parents; "
                f"expected one for each parent"
            )
        inputs = [*parents, *([] if base is None else [base])]
        _check_configs(inputs, kinds[0])
        shards = _shards(parents[0], kinds[0])
        if kinds[0] is not Kind.ADAPTER:
            for path in inputs:
                if (theirs := _shards(path, kinds[0])) != shards:
                    raise ValueError(f"{path} is cut into {len(theirs)} files, {parents[0]} into {len(shards)}")
            for shard in shards:
                check_files({str(path): read_header(_weight_file(path, kinds[0], shard)) for path in inputs})
        chosen = None if space is None else Space(space)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return MergePlan(
        rule=found,
        kind=kinds[0],
        parents=tuple(parents),
        weights=tuple(used),
        base=base,
        out=out,
        settings=given,
        statistics=tuple(statistics),
        space=chosen,
        policy=policy or RankPolicy(),
        shards=shards,
    )


def carry_out(plan: MergePlan) -> dict[str, Any]:
    """Merge, and say what came of it: the recipe, its digest and, for adapters, what was cut off.

    Raises:
        ConfigError: the rule refuses the weights it is given.
        WeightsError: a file is damaged.
    """
    facts: dict[str, Any] = {"recipe": plan.recipe, "digest": content_hash(plan.recipe, 32), "kind": plan.kind.value}
    metadata = {"format": "pt", "merge": facts["digest"]}
    target = plan.out.with_name(f".{plan.out.name}.{uuid.uuid4().hex}.tmp")
    try:
        if plan.kind is Kind.FILE:
            merge_files(
                plan.rule,
                plan.parents,
                plan.weights,
                plan.out,
                plan.base,
                settings=plan.settings,
                statistics=plan.statistics,
                metadata=metadata,
            )
            return facts
        target.mkdir(parents=True)
        if plan.kind is Kind.ADAPTER:
            facts |= _merge_adapters(plan, target, metadata)
        else:
            _merge_shards(plan, target, metadata)
        _copy_others(plan.parents[0], target)
        (target / RECIPE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        target.rename(plan.out)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return facts


def kind_of(path: Path) -> Kind:
    """What lies at a path.

    Raises:
        ConfigError: nothing that can be merged.
    """
    if path.is_file() and path.suffix == ".safetensors":
        return Kind.FILE
    if (path / ADAPTER_FILE).is_file() and (path / ADAPTER_CONFIG).is_file():
        return Kind.ADAPTER
    if (path / MODEL_FILE).is_file() or (path / INDEX_FILE).is_file():
        return Kind.MODEL
    raise ConfigError(
        f"{path} holds nothing to merge; expected a .safetensors file, a folder with {MODEL_FILE} or its shards, or one with "
        f"{ADAPTER_FILE} and {ADAPTER_CONFIG} (pickled weights are not read)"
    )


def _check_base(rule: MergeRule, kind: Kind, base: Path | None) -> None:
    if kind is Kind.ADAPTER:
        if base is not None:
            raise ValueError(f"got the base {base} for adapters; expected none, their changes are what is merged")
        return
    if base is None and rule.needs_base:
        raise ValueError(
            f"{rule.name} merges changes from a base and got none; name what the parents were trained from"
        )
    if base is not None and not rule.takes_base:
        raise ValueError(f"{rule.name} takes no base, got {base}; leave it out, or use a rule that merges changes")
    if base is not None and kind_of(base) is not kind:
        raise ValueError(f"the base {base} holds a {kind_of(base)}; expected a {kind} as the parents are")


def _check_configs(paths: Sequence[Path], kind: Kind) -> None:
    if kind is not Kind.MODEL:
        return
    first = paths[0]
    for path in paths[1:]:
        for name in _SAME_FILES:
            if _digest(path / name) != _digest(first / name):
                raise ValueError(
                    f"{name} of {path} is not that of {first}; expected one tokenizer (its ids mean other text)"
                )
        mine, theirs = _json(first / "config.json"), _json(path / "config.json")
        for name in _SAME_CONFIG:
            if mine.get(name) != theirs.get(name):
                raise ValueError(
                    f"{name} is {theirs.get(name)} in {path / 'config.json'}; expected {mine.get(name)} as in {first}"
                )


def _shards(path: Path, kind: Kind) -> tuple[str, ...]:
    """Names of the weight files in a folder, sorted; an empty one for a file."""
    if kind is Kind.FILE:
        return ("",)
    if kind is Kind.ADAPTER:
        return (ADAPTER_FILE,)
    if (path / MODEL_FILE).is_file():
        return (MODEL_FILE,)
    names = set(_json(path / INDEX_FILE).get("weight_map", {}).values())
    if not names or any("/" in str(name) for name in names):
        raise WeightsError(f"{path / INDEX_FILE} names no shards beside it; expected a weight_map (is it whole?)")
    return tuple(sorted(names))


def _weight_file(path: Path, kind: Kind, shard: str) -> Path:
    return path if kind is Kind.FILE else path / shard


def _merge_shards(plan: MergePlan, target: Path, metadata: Mapping[str, str]) -> None:
    for shard in plan.shards:
        merge_files(
            plan.rule,
            [path / shard for path in plan.parents],
            plan.weights,
            target / shard,
            None if plan.base is None else plan.base / shard,
            settings=plan.settings,
            statistics=plan.statistics,
            metadata=metadata,
        )


def _merge_adapters(plan: MergePlan, target: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    adapters: list[tuple[LoraSpec, Any]] = []
    configs = [_json(path / ADAPTER_CONFIG) for path in plan.parents]
    for path, config in zip(plan.parents, configs, strict=True):
        tensors = load_map(path / ADAPTER_FILE)
        try:
            adapters.append((spec_from_peft(config, adapted_modules(tensors)), tensors))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path / ADAPTER_CONFIG}: {error}") from error
    found = merge_lora_by(plan.rule, adapters, plan.weights, plan.policy, space=plan.space, settings=plan.settings)
    spec = found.merge.spec
    save_map(target / ADAPTER_FILE, found.merge.tensors, metadata)
    changed = {
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "use_rslora": spec.use_rslora,
        "rank_pattern": {},
        "alpha_pattern": {},
        "target_modules": list(spec.target_modules),
    }
    text = json.dumps({**configs[0], **changed}, indent=2, sort_keys=True)
    (target / ADAPTER_CONFIG).write_text(text + "\n", encoding="utf-8")
    return {
        "rank": spec.rank,
        "space": found.space.value,
        "depends_on_basis": found.depends_on_basis,
        "tail_energy": max(found.merge.tail_energy.values(), default=0.0),
    }


def _copy_others(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix not in _NOT_COPIED and not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise WeightsError(f"{path} is no JSON: {error}") from error
    return data if isinstance(data, dict) else {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
