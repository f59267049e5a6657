"""`coharness judge audit`: a run's judge held against its verifier, from the run's files and its cache of judgments."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coharness.config.reward import JudgeSection, LinearJudgeSection, TrainedJudgeSection
from coharness.config.schema import RunConfig
from coharness.loop.build import build_fixed_judge, run_sources
from coharness.loop.repairing import stored_audits
from coharness.loop.replay_store import read_episodes
from coharness.loop.run_dir import RunDir
from coharness.policy.bases import resolve_base
from coharness.policy.codec import open_codec
from coharness.records.errors import ConfigError
from coharness.records.ids import TaskId
from coharness.records.protocols import TextCodec
from coharness.records.task import TaskRef
from coharness.records.work import Purpose
from coharness.reward.judges.rubric import load_rubric
from coharness.reward.monitors.shortcut import shortcuts, text_features
from coharness.reward.reflection.concentration import blame_criteria
from coharness.reward.reflection.conflicts import Audited, audit_episodes, mine
from coharness.reward.reflection.pairs import preference_pairs
from coharness.stats.interval import Interval
from coharness.stats.proportions import wilson

SHORTCUT_BOUND = 0.1
SATURATED_ABOVE = 0.95
MET = 0.9


def audit_run(run: Path, *, pairs: Path | None, pay: bool) -> dict[str, Any]:
    """What the training episodes of a run say of its judge, as JSON values.

    Args:
        run: a run's folder.
        pairs: where to write preference pairs as JSON lines; not written where left out.
        pay: whether judgments that are not kept may be paid for; else such episodes are left out.

    Raises:
        ConfigError: the run has no judge, or no judged episode.
    """
    folder = RunDir.open(run)
    config = folder.load_config()
    section = config.reward.judge
    if section is None:
        raise ConfigError(f"{run} has no judge; its config says nothing under reward.judge")
    table = read_episodes(folder.replay_dir)
    table = table.filter(np.asarray(table["purpose"].to_pylist()) == Purpose.TRAIN.value)
    spec = resolve_base(config.policy.base)
    codec = open_codec(spec.path, is_chat=spec.is_chat)
    versions: list[dict[str, Any]] = []
    if isinstance(section, LinearJudgeSection):
        versions, audited = _by_version(table, config, codec)
    else:
        audited = _judged_again(
            table, config, section if pay else section.model_copy(update={"max_calls": 0}), folder, codec
        )
    if not audited:
        raise ConfigError(f"{run} holds no training episode with a judgment; ask for them with --pay")
    found = _findings(audited, section.rubric if isinstance(section, JudgeSection) else None)
    if versions:
        found["versions"] = versions
    if pairs is not None:
        made = preference_pairs(audited, seed=config.seed)
        pairs.write_text("".join(json.dumps(asdict(pair), ensure_ascii=True) + "\n" for pair in made), encoding="utf-8")
        found["pairs"] = len(made)
    return {"run": str(run), "episodes": table.num_rows, **found}


def _judged_again(
    table: pa.Table, config: RunConfig, section: JudgeSection | TrainedJudgeSection, folder: RunDir, codec: TextCodec
) -> list[Audited]:
    """What the run's own judge says, from its cache where it has said it before."""
    columns = table.select(["token_ids", "loss_mask"]).to_pylist()
    texts = [codec.decode([t for t, own in zip(r["token_ids"], r["loss_mask"], strict=True) if own]) for r in columns]
    judge = build_fixed_judge(section, folder.path)
    try:
        return audit_episodes(table, _questions(config, table), judge.judge, texts=texts)
    finally:
        judge.close()


def _by_version(table: pa.Table, config: RunConfig, codec: TextCodec) -> tuple[list[dict[str, Any]], list[Audited]]:
    """Rates of each version of a linear judge, in the order they served, and all attempts; from the store's own parts."""
    sources = run_sources(config)
    versions, everything = [], []
    for version in dict.fromkeys(name for name in table["judge"].to_pylist() if name):
        audited, _ = stored_audits(table.filter(pc.equal(table["judge"], version)), sources, codec)
        if not audited:
            continue
        everything += audited
        conflicts = mine(audited)
        versions.append(
            {
                "judge": version,
                "audited": len(audited),
                "lenient": _shown(conflicts.lenient_rate),
                "strict": _shown(conflicts.strict_rate),
            }
        )
    return versions, everything


def _questions(config: Any, table: Any) -> dict[str, str]:
    sources = run_sources(config)
    recipes = {row["task"]: row for row in table.select(["task", "family", "level", "task_seed"]).to_pylist()}
    return {
        name: sources.make(
            TaskRef(family=row["family"], level=row["level"], seed=row["task_seed"], id=TaskId(name))
        ).question
        for name, row in recipes.items()
    }


def _findings(audited: Sequence[Audited], rubric_path: str | None) -> dict[str, Any]:
    conflicts = mine(audited)
    found: dict[str, Any] = {
        "audited": len(audited),
        "lenient": {"count": len(conflicts.lenient), "rate": _shown(conflicts.lenient_rate)},
        "strict": {"count": len(conflicts.strict), "rate": _shown(conflicts.strict_rate)},
        "shortcuts": [],
        "saturated": [],
        "blamed": [],
    }
    features = [text_features(a.answer) for a in audited]
    if len(audited) >= 20:
        table = {name: [f[name] for f in features] for name in features[0]}
        rewards, verified = [a.judged for a in audited], [a.verified for a in audited]
        found["shortcuts"] = [
            {"feature": s.feature, "correlation": _shown(s.correlation)}
            for s in shortcuts(rewards, verified, table, np.random.default_rng(0))
            if s.is_used(SHORTCUT_BOUND)
        ]
    for name in sorted({name for a in audited for name in a.criteria}):
        values = [a.criteria[name] for a in audited if name in a.criteria]
        met = wilson(sum(value >= MET for value in values), len(values))
        if met.low > SATURATED_ABOVE:
            found["saturated"].append({"criterion": name, "met": _shown(met)})
    if rubric_path is None:
        return found
    try:
        blamed = blame_criteria(load_rubric(rubric_path), audited)
    except ValueError as error:
        found["note"] = str(error)
    else:
        found["blamed"] = [
            {"criterion": b.criterion, "edit": str(b.edit), "lift": round(b.lift, 3), "p": round(b.p_value, 5)}
            for b in blamed
            if b.edit is not None
        ]
    return found


def _shown(interval: Interval) -> list[float]:
    return [round(interval.low, 4), round(interval.value, 4), round(interval.high, 4)]


def audit_text(found: Mapping[str, Any]) -> str:
    """The findings for people."""

    def rate(entry: Mapping[str, Any]) -> str:
        low, value, high = entry["rate"]
        return f"{entry['count']} ({value:.1%}, {low:.1%} to {high:.1%})"

    lines = [
        f"{found['audited']} of {found['episodes']} training episodes have a judgment",
        f"rated high and wrong   {rate(found['lenient'])}",
        f"rated low and right    {rate(found['strict'])}",
    ]
    for version in found.get("versions", ()):
        low, value, high = version["lenient"]
        lines.append(
            f"{version['judge']:<22} high and wrong in {value:.1%} of {version['audited']} ({low:.1%} to {high:.1%})"
        )
    for shortcut in found["shortcuts"]:
        low, value, high = shortcut["correlation"]
        lines.append(
            f"shortcut               the judge follows {shortcut['feature']}: {value:.2f} ({low:.2f} to {high:.2f})"
        )
    lines += [f"worn out               {c['criterion']} is met by {c['met'][1]:.1%}" for c in found["saturated"]]
    lines += [
        f"to blame               {b['criterion']}, {b['lift']:.1f} times likelier met in conflicts: {b['edit']}"
        for b in found["blamed"]
    ]
    if "note" in found:
        lines.append(f"no criterion blamed    {found['note']}")
    if "pairs" in found:
        lines.append(f"pairs written          {found['pairs']}")
    return "\n".join(lines)
