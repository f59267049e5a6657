"""The work behind `coharness judge evolve` and `coharness judge compare`: files in, files and figures out."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coharness.records.errors import ConfigError
from coharness.records.ids import JSON
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.images.dataset import Demonstrations, load
from coharness.reward.images.measure import NOTES, Task, measure_tasks
from coharness.reward.images.media import decode_image
from coharness.reward.images.spec import parse
from coharness.reward.images.toolbox import FEATURES, TOOLS
from coharness.reward.library.chain import credits_of
from coharness.reward.library.evolution import EvolutionSettings, Evolved
from coharness.reward.library.evolve import evolve
from coharness.reward.library.executor import design, score
from coharness.reward.library.files import read_library
from coharness.reward.library.ideas import pool_of
from coharness.reward.library.library import Library
from coharness.reward.library.lint import errors_of, lint_library
from coharness.reward.library.preferences import GroupAccuracy, Label, agrees, group_accuracy, num_pairs_of
from coharness.reward.library.records import Record, RecordKind, read_records
from coharness.reward.library.tagged import Call
from coharness.reward.library.versions import VersionStore
from coharness.reward.library.vlm import Instrument, PairJudgment, PairTask, VlmJudge


def evolve_file(
    demonstrations: Path,
    store: Path,
    *,
    kind: RecordKind = RecordKind.EDITREWARD_DATA,
    start: Path | None = None,
    seed: int = 0,
    shuffles: int = 20,
    use_strength: bool = False,
) -> dict[str, JSON]:
    """Evolve a library from a file of preferences, keep every version, and say what labels without meaning would have given.

    Args:
        demonstrations: JSONL or Parquet, images beside it.
        store: folder of the version store; the new version becomes its champion only where the gate opened for it.
        kind: whose rows they are.
        start: folder of the library to begin with; the store's champion where left out, else an empty one.
        seed: of the split.
        shuffles: evolutions from labels by coin, for the null.
        use_strength: whether a pair counts by its strength.

    Raises:
        ConfigError: the library has errors of the linter.
        TaskError: the file is wrong, or has too few preferences.
    """
    data = load(demonstrations, kind, use_strength=use_strength)
    versions = VersionStore(store)
    first = _start(start, versions)
    broken = errors_of(lint_library(first, features=FEATURES))
    if broken:
        raise ConfigError(
            f"the library {first.name} has errors, first {broken[0].where}: {broken[0].message}; "
            "coharness judge lint-library lists all"
        )
    settings = EvolutionSettings(seed=seed)
    pool = pool_of(data.table)
    found = evolve(data.table, data.pairs, settings, start=first, notes=NOTES, pool=pool)
    origin = versions.add(first, why="what the evolution began with")
    digest = versions.add(found.library, parents=(origin,) if origin != found.library.digest else (), why=_why(found))
    if found.library.criteria and digest != origin:
        versions.crown(digest)
    rng = np.random.default_rng([seed, 2])
    nulls = [
        evolve(data.table, data.pairs.with_targets((rng.random(len(data.pairs)) < 0.5).astype(np.float64)),
               EvolutionSettings(seed=seed + 1 + shuffle), start=Library.of("null"), pool=pool).accepted
        for shuffle in range(shuffles)
    ]  # fmt: skip
    report = {
        "library": digest,
        "champion": versions.champion,
        "tie": found.tie,
        "pairs": len(data.pairs),
        "groups": len(np.unique(data.pairs.group)),
        "left_out": len(data.unread),
        "skills": [entry.name for entry in found.library.skills],
        "confirmed": None if found.confirmed is None else _comparison(found),
        "null_accepted": {"mean": float(np.mean(nulls)) if nulls else None, "shuffles": shuffles},
        "judgments": {"asked": found.judgments, "without_cache": found.judgments_without_cache},
        "trials": [
            {
                "action": t.action.value, "name": t.name, "accepted": t.accepted, "reason": t.reason,
                "accuracy": round(t.accuracy, 4),
            }
            for t in found.trials
        ],
        "credits": _credits(data, found.library),
    }  # fmt: skip
    (store / f"{digest}.report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """One judged pair."""

    name: str
    group: str
    k: int
    truth: Label
    said: Label | None
    "None where the judgment failed or abstained."
    reason: str = ""
    flags: tuple[str, ...] = ()
    "What is suspicious in the images; looked for where a model judges, since tools do not read praise."

    @property
    def right(self) -> bool | None:
        """Whether it agrees; None where nothing was said."""
        return None if self.said is None else agrees(self.said, self.truth)


def compare_file(
    library: Path, file: Path, *, kind: RecordKind, tie: float = 0.0, vlm: Callable[[Library], VlmJudge] | None = None
) -> tuple[list[PairResult], dict[str, JSON]]:
    """Judge a file of preferences by a library: by its tools, or by a model that sees the images.

    Args:
        library: a library's folder.
        file: JSONL or Parquet, images beside it.
        kind: whose rows they are.
        tie: difference of scores up to which tools say tie.
        vlm: makes the judge by a model; tools alone where left out.
    """
    version = read_library(library)
    records = read_records(file, kind)
    results = (
        _by_tools(version, file, kind, records, tie) if vlm is None else _by_model(vlm(version), file.parent, records)
    )
    return results, {"library": version.digest, **_figures(results)}


def instruments_of(pair: PairTask) -> Mapping[str, Instrument]:
    """The measuring tools for a pair, by name; each looks at one candidate beside the source."""
    spec = parse(pair.instruction)
    if spec is None:
        return {}
    images = {"source": pair.source, "A": pair.first, "B": pair.second}

    def instrument(ref: str) -> Instrument:
        def measured(call: Call) -> JSON:
            names = [name for name in call.images if name != "source"]
            if not names:
                return {"error": "name A or B; the source is what they are held against"}
            source = decode_image(images["source"], "source")
            candidates = tuple(decode_image(images[name], name) for name in names)
            table = measure_tasks(
                [Task(name="pair", source=source, instruction=pair.instruction, candidates=candidates)]
            ).table
            columns = [index for index, feature in enumerate(FEATURES) if feature.startswith(f"{ref}/")]
            return {
                name: {FEATURES[c].partition("/")[2]: _plain(table.values[row, c]) for c in columns}
                for row, name in enumerate(names)
            }

        return measured

    return {tool.name: instrument(ref) for ref, tool in TOOLS.items()}


# Parts ---------------------------------------------------------------------------------------------------------------


def _start(start: Path | None, versions: VersionStore) -> Library:
    if start is not None:
        return read_library(start)
    return Library.of("evolved") if versions.champion is None else versions.get(versions.champion)


def _why(found: Evolved) -> str:
    num_deleted = sum(trial.accepted for trial in found.trials) - found.accepted
    return f"{found.accepted} additions and {num_deleted} deletions of {len(found.trials)} trials"


def _comparison(found: Evolved) -> dict[str, JSON]:
    confirmed = found.confirmed
    if confirmed is None:
        return {}
    return {
        "before": confirmed.incumbent, "after": confirmed.challenger, "gain": confirmed.gain.value,
        "low": confirmed.gain.low, "high": confirmed.gain.high, "groups": confirmed.num_groups,
        "note": "on the groups that decided its acceptances; only fresh data say how good it is",
    }  # fmt: skip


def _credits(data: Demonstrations, library: Library) -> list[dict[str, JSON]]:
    names = tuple(name for name, _ in library.criteria)
    criteria = [criterion for _, criterion in library.criteria]
    columns = np.nan_to_num(design(data.table, criteria), nan=0.0) * np.array([c.weight for c in criteria])
    found = credits_of(names, columns[data.pairs.first] - columns[data.pairs.second], data.pairs)
    return [
        {"name": c.name, "used": c.used, "right": c.right, "saved": c.pivotal_right, "spoiled": c.pivotal_wrong} for c in found
    ]  # fmt: skip


def _by_tools(
    library: Library, file: Path, kind: RecordKind, records: Sequence[Record], tie: float
) -> list[PairResult]:
    data = load(file, kind)
    scores = score(data.table, library, tie=tie)
    said = {
        name: scores.verdict(int(first), int(second))
        for name, first, second in zip(data.names, data.pairs.first, data.pairs.second, strict=True)
    }
    unread = "the instruction is not understood"
    return [
        _result(record, said.get(record.preference.name), "" if record.preference.name in said else unread)
        for record in records
    ]


def _by_model(judge: VlmJudge, folder: Path, records: Sequence[Record]) -> list[PairResult]:
    results = []
    for record in records:
        pair = PairTask(
            instruction=record.instruction, source=(folder / record.source).read_bytes(),
            first=(folder / record.first).read_bytes(), second=(folder / record.second).read_bytes(),
        )  # fmt: skip
        judged: PairJudgment = judge.judge(pair)
        results.append(
            _result(record, judged.label if judged.outcome is PartOutcome.OK else None, judged.reason, judged.flags)
        )
    return results


def _result(record: Record, said: Label | None, reason: str, flags: tuple[str, ...] = ()) -> PairResult:
    one = record.preference
    return PairResult(
        name=one.name, group=one.group, k=record.k, truth=one.label, said=said, reason=reason, flags=flags
    )


def _figures(results: Sequence[PairResult]) -> dict[str, JSON]:
    judged = [result for result in results if result.right is not None]
    figures: dict[str, JSON] = {
        "pairs": len(results),
        "judged": len(judged),
        "right": sum(result.right is True for result in judged),
        "reasons": dict(Counter(result.reason for result in results if result.right is None).most_common(5)),
    }
    for k in (2, 3, 4):
        groups: dict[str, list[bool | None]] = {}
        for result in results:
            if result.k == k:
                groups.setdefault(result.group, []).append(result.right)
        if groups and all(len(pairs) == num_pairs_of(k) for pairs in groups.values()):
            found: GroupAccuracy = group_accuracy(groups, k)
            figures[f"k{k}"] = {"correct": found.correct, "groups": found.groups, "failed": found.failed}
    return figures


def _plain(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)
