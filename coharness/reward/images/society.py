"""The work behind `coharness judge evolve-model`: a population of libraries over a file of preferences and a model that sees."""

from collections.abc import Callable, Mapping
from pathlib import Path

from coharness.records.errors import TaskError
from coharness.records.ids import JSON
from coharness.reward.images.endpoint_model import EndpointModel
from coharness.reward.library.files import read_library
from coharness.reward.library.gate import GateRule
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryPopulation
from coharness.reward.library.records import Record, RecordKind, read_records
from coharness.reward.library.society import Analyser, LabelledPair, ModelTrials, Telling, improve
from coharness.reward.library.table import split_groups
from coharness.reward.library.trial_pool import Judge, JudgeSpec, TrialPool
from coharness.reward.library.versions import VersionStore
from coharness.reward.library.vlm import PairTask

CONFIRM = 0.4
"""Share of the groups that decide and never propose."""


MakePool = Callable[[JudgeSpec, Judge], TrialPool]
"""What opens the pool of a society: from how a judge is built elsewhere, and the judge that is here already."""


def evolve_by_model(
    file: Path,
    store: Path,
    model: EndpointModel,
    make_pool: MakePool,
    *,
    kind: RecordKind,
    start: Path | None,
    islands: int,
    trials: int,
    seed: int,
    telling: Telling = Telling.ARRIVAL,
) -> dict[str, JSON]:
    """Evolve libraries of a model's judge, keep all that were accepted at the end, and crown the best where it gained.

    Args:
        file: preferences, JSONL or Parquet, images beside it.
        store: folder of the version store.
        model: what judges and analyses, here and in each process of the pool.
        make_pool: opens what judges the trials; it is closed here.
        kind: whose rows the file holds.
        start: folder of the library to begin with; the store's champion where left out, else an empty one.
        islands: lineages that exchange entries.
        trials: proposals that are judged at most.
        seed: of splits and order.
        telling: when the population hears of what.

    Raises:
        TaskError: the file is wrong, or has preferences on fewer than four groups.
    """
    pairs = _pairs(file, kind, seed)
    versions = VersionStore(store)
    first = _start(start, versions)
    origin = versions.add(first, why="what the evolution began with")
    complete, make = model.open()
    analyser = Analyser(complete=complete, make=make, pairs=pairs[False])
    settings = {"file": str(file.absolute()), "kind": kind.value, "seed": seed, "model": model.to_json()}
    spec = JudgeSpec(factory=f"{__name__}:trials_of", settings=settings)
    pool = make_pool(spec, ModelTrials(make, pairs[True]).judge)
    population = LibraryPopulation.of([first] * islands, GateRule(level=0.84), seed=seed)
    try:
        population = improve(population, analyser.propose, pool, trials=trials, telling=telling)
    finally:
        pool.close()
    kept = []
    for island in population.islands:
        if island.accepted:
            kept.append(versions.add(island.library, parents=(origin,), why=f"{island.accepted} accepted changes"))
    best = population.best
    if best.accepted:
        versions.crown(best.library.digest)
    return {
        "champion": versions.champion,
        "kept": kept,
        "islands": [
            {"library": i.library.digest, "accepted": i.accepted, "accuracy": i.accuracy, "refused": len(i.refused)}
            for i in population.islands
        ],
        "trials": population.next_number,
        "stale": population.stale,
        "analyses_failed": analyser.failures,
        "dropped": analyser.dropped[:20],
        "note": "accuracy is on the pairs that decided; only fresh data say how good a library is",
    }


def trials_of(settings: Mapping[str, JSON]) -> Judge:
    """The judge of a society's trials in a process of its own; the factory of its `JudgeSpec`."""
    pairs = _pairs(Path(settings["file"]), RecordKind(settings["kind"]), settings["seed"])
    _, make = EndpointModel.from_json(settings["model"]).open()
    return ModelTrials(make, pairs[True]).judge


def _pairs(file: Path, kind: RecordKind, seed: int) -> dict[bool, list[LabelledPair]]:
    """Whether pairs decide -> pairs; those of one group are on one side."""
    records = read_records(file, kind)
    groups = sorted({record.preference.group for record in records})
    if len(groups) < 4:
        raise TaskError(
            f"{file} has preferences on {len(groups)} groups, expected 4 or more to propose and to confirm on"
        )
    confirms = dict(zip(groups, split_groups(groups, CONFIRM, seed).tolist(), strict=True))
    pairs = {True: list[LabelledPair](), False: list[LabelledPair]()}
    for record in records:
        pairs[confirms[record.preference.group]].append(_labelled(record, file.parent))
    return pairs


def _labelled(record: Record, folder: Path) -> LabelledPair:
    task = PairTask(
        instruction=record.instruction,
        source=(folder / record.source).read_bytes(),
        first=(folder / record.first).read_bytes(),
        second=(folder / record.second).read_bytes(),
    )
    return LabelledPair(task=task, label=record.preference.label, group=record.preference.group)


def _start(start: Path | None, versions: VersionStore) -> Library:
    if start is not None:
        return read_library(start)
    return Library.of("evolved") if versions.champion is None else versions.get(versions.champion)
