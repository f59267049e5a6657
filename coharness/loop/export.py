"""Export a member: weights that load in transformers, PEFT and vLLM as they are, with the harness beside them."""

import json
import shutil
from pathlib import Path
from typing import Any

from coharness.config.yaml_text import write_mapping
from coharness.loop.build import fold_run
from coharness.loop.run_dir import RunDir
from coharness.records.errors import ConfigError
from coharness.records.policy import VersionRef, WeightsKind
from coharness.records.work import Serving


def export(run_dir: Path, member: str, dest: Path) -> dict[str, Any]:
    """Write a member to a new folder.

    Args:
        run_dir: the run.
        member: `champion`, a policy such as `p3` (its head), or a version such as `p3@12`.
        dest: the folder to make.

    Returns:
        What was exported, as JSON values.

    Raises:
        ConfigError: the folder exists, or there is no such member.
    """
    from coharness.policy.bases import resolve_base
    from coharness.policy.weights import read_weights

    run = RunDir.open(run_dir)
    if dest.exists():
        raise ConfigError(f"{dest} exists already; export into a new folder")
    evolution = fold_run(run)
    state = evolution.state
    serving = _find(evolution.state, member)
    version = state.versions.get(serving.version)
    if version is None:
        raise ConfigError(
            f"there are no weights of {serving.version}: it was retired, or never was; export the champion or a member's head"
        )
    base = resolve_base(evolution.context.config.policy.base)
    kind = version.weights.kind
    if kind is not WeightsKind.BASE:
        read_weights(run.path, version.weights)  # Refuses damaged weights before anything is written.
    dest.mkdir(parents=True)
    if kind is not WeightsKind.LORA:
        shutil.copytree(base.path, dest, dirs_exist_ok=True)
    if kind is not WeightsKind.BASE:
        folder = run.path / version.weights.uri
        for path in folder.iterdir():
            if path.name not in ("optimizer.safetensors", "manifest.json"):
                shutil.copy2(path, dest / path.name)
    (dest / "harness.yaml").write_text(write_mapping(state.harnesses[serving.harness].to_json()), encoding="utf-8")
    facts = {
        "run": state.run_id,
        "serving": str(serving),
        "kind": kind.value,
        "base": base.name,
        "base_digest": base.digest,
        "weights_digest": version.weights.digest,
    }
    (dest / "coharness.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")
    return facts


def _find(state: Any, member: str) -> Serving:
    champion: Serving | None = state.champion
    if champion is None:
        raise ConfigError("the run has not begun; there is nothing to export")
    if member == "champion":
        return champion
    policy, at, step = member.partition("@")
    if at and not step.isdigit():
        raise ConfigError(f"{member!r} is no version; write p3@12, a policy such as p3 for its head, or champion")
    if at:
        return Serving(VersionRef(policy, int(step)), champion.harness)  # type: ignore[arg-type]
    found = state.member(policy)
    if found is None:
        names = ", ".join(m.policy for m in state.members)
        raise ConfigError(f"there is no member {member!r}; members are {names}, or say champion")
    return Serving(found.head.ref, champion.harness)
