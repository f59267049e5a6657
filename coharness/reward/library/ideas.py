"""Criteria that could be worth having, from what the tools measured; no label is looked at.

Each feature gives a few transforms placed by its quantiles, for all tasks and for each kind of task apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coharness.reward.library.criterion import Criterion, Floats, Fn, Transform
from coharness.reward.library.entries import Entry, Kind
from coharness.reward.library.executor import design
from coharness.reward.library.table import FeatureTable

MIN_VALUES = 24
"""Fewest candidates with a value that a criterion is made from."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureNote:
    """What a domain says of one feature, for people and for axes."""

    about: str
    "One sentence on its tool."
    axis: str = "quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Ideas with their values on one table; made once, since labels play no part in it."""

    criteria: tuple[Criterion, ...]
    "With weight 1."
    columns: Floats
    "Transformed values [C, J]; 0 where missing."


def pool_of(table: FeatureTable) -> Pool:
    """All ideas that a table's measurements allow."""
    kinds: list[tuple[str, ...]] = [()]
    distinct = sorted(set(table.contexts))
    if len(distinct) > 1:
        kinds += [(kind,) for kind in distinct]
    criteria = [
        Criterion(feature=feature, transform=transform, weight=1.0, contexts=contexts)
        for contexts in kinds
        for feature in table.features
        for transform in _transforms(table.column(feature)[table.applies(contexts)])
    ]
    columns = np.nan_to_num(design(table, criteria), nan=0.0)
    # Two ideas that order all candidates alike are one; the first, which is for more tasks or simpler, stays.
    _, first = np.unique(np.round(columns, 9), axis=1, return_index=True)
    kept = sorted(int(index) for index in first)
    return Pool(criteria=tuple(criteria[index] for index in kept), columns=columns[:, kept])


def entry_of_criterion(criterion: Criterion, taken: Sequence[str], notes: Mapping[str, FeatureNote]) -> Entry:
    """A skill for a criterion: a free name, and a text that a person or a model can judge by."""
    note = notes.get(criterion.feature, FeatureNote(about=f"What {criterion.tool} measures."))
    output = criterion.feature.partition("/")[2].replace("_", "-")
    tool = criterion.tool.partition("@")[0]
    way = _WAYS[criterion.transform.fn][criterion.weight > 0]
    stem = "-".join(
        [tool, output, way.split()[0].strip(","), *(("for", *criterion.contexts) if criterion.contexts else ())]
    )[:70]
    stem = stem.replace("_", "-")
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}-{number}", number + 1
    cases = f" Applies to tasks of the kind {', '.join(criterion.contexts)}." if criterion.contexts else ""
    near = f"{criterion.transform.offset:.4g}"
    body = (
        f"Better where {output.replace('-', ' ')} is {way.format(near=near)}.{cases}\n\n"
        f"{note.about} The figure is `{criterion.feature}`; where it cannot be told, this skill says nothing."
    )
    described = f"{note.about.rstrip('.')}: {output.replace('-', ' ')}, {way.format(near=near)} is better."
    return Entry(kind=Kind.SKILL, name=name, description=described, body=body, criterion=criterion)


_WAYS = {
    Fn.LINEAR: ("lower", "higher"),
    Fn.NEG: ("higher", "lower"),
    Fn.NEG_ABS: ("far from {near}", "close to {near}"),
    Fn.CLIP: ("lower, around {near}", "higher, around {near}"),
    Fn.SAT: ("lower, around {near}", "higher, around {near}"),
    Fn.STEP: ("below {near}", "above {near}"),
    Fn.LOG1P: ("lower, beyond {near}", "higher, beyond {near}"),
}


def _transforms(values: Floats) -> list[Transform]:
    known = values[~np.isnan(values)]
    if len(known) < MIN_VALUES or float(known.std()) < 1e-9:
        return []
    marks = np.quantile(known, _QUANTILES)
    std = float(known.std())
    spread = max(float(marks[3] - marks[1]), 0.5 * std)
    offsets = list(dict.fromkeys(float(f"{mark:.4g}") for mark in marks))
    made = [Transform(fn=Fn.LINEAR, offset=offsets[len(offsets) // 2], scale=_rounded(std))]
    made += [Transform(fn=Fn.SAT, offset=offset, scale=_rounded(spread)) for offset in offsets]
    made += [Transform(fn=Fn.STEP, offset=offset, scale=_rounded(spread)) for offset in offsets[:-1]]
    made += (
        [Transform(fn=Fn.NEG_ABS, offset=0.0, scale=_rounded(std))]
        if float(known.min()) < 0 < float(known.max())
        else []
    )
    made += [Transform(fn=Fn.LOG1P, offset=offsets[0], scale=_rounded(spread / 4))]
    return made


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
