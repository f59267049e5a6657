"""What distinguishes two harness genomes, in words a person can read; report, journal viewers and logs use it.

Invariant: the list is empty exactly when both genomes have the same id. Genes without a phrase of their own are named by
their field, so a new gene shows up here the day it is added.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from coharness.records.harness import Harness, TaskGene

_WORDS = {
    "prompt.num_shots": "worked examples",
    "episode.num_distractors": "distracting characters",
    "episode.max_tokens": "token budget",
    "sampling.explore_formats": "share of groups in another format",
    "sampling.learnability": "share drawn by learnability",
    "sampling.uniform_floor": "share drawn uniformly",
    "sampling.level_up": "success that moves a level up",
    "sampling.level_down": "success that moves a level down",
    "sampling.min_groups": "groups between two moves of a level",
    "reward.exact": "reward for a correct answer",
    "reward.partial": "reward for partial credit",
    "reward.format": "reward for a readable answer",
    "reward.length": "reward for a short answer",
    "reward.rule": "reward rule",
}


def harness_diff(before: Harness, after: Harness) -> list[str]:
    """One phrase for each gene in which `after` differs from `before`, such as `format of count, sort: plain → trace`.

    Serving genes (prompt, episode) come first, then training genes (tasks, sampling, reward).
    """
    phrases = [*_formats(before, after)]
    for section in ("prompt", "episode"):
        phrases += _scalars(section, before, after)
    phrases += _tasks(before, after)
    for section in ("sampling", "reward"):
        phrases += _scalars(section, before, after)
    if before.schema != after.schema:
        phrases.append(_change("genome schema", before.schema, after.schema))
    return phrases


def _change(name: str, before: object, after: object) -> str:
    return f"{name}: {_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _formats(before: Harness, after: Harness) -> list[str]:
    old, new = before.prompt.formats, after.prompt.formats
    # A family that is missing here is answered in its source's first format, which the genome does not name.
    return _by_family(
        "format",
        {
            family: (old.get(family, "default"), new.get(family, "default"))
            for family in sorted({*old, *new})
            if old.get(family) != new.get(family)
        },
    )


def _by_family(gene: str, changes: Mapping[str, tuple[object, object]]) -> list[str]:
    """Changes of one gene by family, families that change alike in one phrase."""
    alike: dict[tuple[object, object], list[str]] = {}
    for family, change in changes.items():
        alike.setdefault(change, []).append(family)
    return [_change(f"{gene} of {', '.join(families)}", was, now) for (was, now), families in alike.items()]


def _scalars(section: str, before: Harness, after: Harness) -> Iterator[str]:
    old: Any = getattr(before, section)
    new: Any = getattr(after, section)
    for gene in fields(new):
        if gene.name == "formats":
            continue
        was, now = getattr(old, gene.name), getattr(new, gene.name)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _trees(_WORDS.get(f"{section}.{gene.name}", gene.name), was, now)
        elif was != now:
            yield _change(_WORDS.get(f"{section}.{gene.name}", gene.name.replace("_", " ")), was, now)


def _trees(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Leaves in which two trees of JSON values differ; a tree that came or went as a whole in one phrase."""
    if was and now:
        old, new = dict(_leaves(was)), dict(_leaves(now))
        for place in sorted({*old, *new}):
            if old.get(place) != new.get(place):
                yield _change(f"{name}, {place}", old.get(place, "nothing"), new.get(place, "nothing"))
    elif was != now:
        yield _change(name, "a rule" if was else "weights", "a rule" if now else "weights")


def _leaves(tree: Any, place: str = "") -> Iterator[tuple[str, object]]:
    match tree:
        case Mapping() if tree:
            for key, value in tree.items():
                yield from _leaves(value, f"{place}.{key}" if place else str(key))
        case list() | tuple() if tree:
            for index, value in enumerate(tree):
                yield from _leaves(value, f"{place}[{index}]")
        case _:
            yield place, tree


def _tasks(before: Harness, after: Harness) -> Iterator[str]:
    levels: dict[str, tuple[object, object]] = {}
    weights: dict[str, tuple[object, object]] = {}
    for family in sorted({gene.family for gene in (*before.tasks, *after.tasks)}):
        old, new = before.task_gene(family), after.task_gene(family)
        if old is None and new is not None:
            yield f"trains on {family} too, levels {_levels(new)}, weight {new.weight:g}"
        elif new is None:
            yield f"no longer trains on {family}"
        elif old is not None:
            if _levels(old) != _levels(new):
                levels[family] = (_levels(old), _levels(new))
            if old.weight != new.weight:
                weights[family] = (old.weight, new.weight)
    yield from _by_family("training levels", levels)
    yield from _by_family("training weight", weights)


def _levels(gene: TaskGene) -> str:
    return str(gene.level_low) if gene.level_low == gene.level_high else f"{gene.level_low}–{gene.level_high}"
