"""Which criterion lets the wrong through? Where conflicts concentrate in one, it is cheaper to reword it than to train a judge.

Among failed attempts, a criterion that is met more often in conflicts than elsewhere explains them (Fisher's exact test,
one-sided; false discoveries after Benjamini and Hochberg, 1995). What to do follows from how well it tells passed from failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from coharness.reward.judges.lint import lint
from coharness.reward.judges.rubric import Rubric
from coharness.reward.reflection.conflicts import Audited

MET = 0.9
MIN_CONFLICTS = 5


class Edit(StrEnum):
    """What to try."""

    MECHANISM = "mechanism"
    "Ask that it is done or explained, where the wording asks for a mention."
    SPLIT = "split"
    "One demand each, where the wording joins several."
    LOWER_WEIGHT = "lower_weight"
    "Half the weight: it tells right from wrong, but weakly."
    RETIRE = "retire"
    "It is met by wrong attempts at least as often as by right ones."


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """A criterion's part in the conflicts."""

    criterion: str
    lift: float
    "How much likelier it is met in conflicts than in other failed attempts."
    p_value: float
    "Adjusted for looking at all criteria."
    discrimination: float
    "Share of passed attempts that meet it minus that of failed ones."
    edit: Edit | None
    "None where it is not to blame."


def blame_criteria(
    rubric: Rubric, attempts: Sequence[Audited], *, high: float = 0.7, level: float = 0.05
) -> list[Blame]:
    """Each criterion's part in the conflicts, the most blamed first.

    Raises:
        ValueError: fewer than 5 conflicts, or no failed attempt beside them, or no passed one.
    """
    failed = [a for a in attempts if not a.verified]
    conflicts = [a for a in failed if a.judged >= high]
    plain = [a for a in failed if a.judged < high]
    passed = [a for a in attempts if a.verified]
    if len(conflicts) < MIN_CONFLICTS or not plain or not passed:
        raise ValueError(
            f"got {len(conflicts)} conflicts, {len(plain)} other failed and {len(passed)} passed attempts; expected at least "
            f"{MIN_CONFLICTS}, 1 and 1; audit more before a criterion is blamed"
        )
    names = [c.name for c in rubric.criteria]
    counts = {n: [_met(n, group) for group in (conflicts, plain, passed)] for n in names}
    raw = [
        stats.fisher_exact([[c, len(conflicts) - c], [p, len(plain) - p]], alternative="greater").pvalue
        for c, p, _ in counts.values()
    ]
    adjusted = stats.false_discovery_control(np.clip(raw, 0.0, 1.0))
    warned = {(f.where, f.rule) for f in lint(rubric)}
    found = []
    for name, p_value in zip(names, adjusted, strict=True):
        c, p, right = counts[name]
        discrimination = right / len(passed) - (c + p) / len(failed)
        found.append(
            Blame(
                criterion=name,
                lift=(c + 0.5) / (len(conflicts) + 1) / ((p + 0.5) / (len(plain) + 1)),
                p_value=float(p_value),
                discrimination=discrimination,
                edit=_edit(name, discrimination, warned) if p_value <= level else None,
            )
        )
    return sorted(found, key=lambda b: (b.edit is None, b.p_value, -b.lift))


def _met(name: str, group: Sequence[Audited]) -> int:
    return sum(a.criteria.get(name, 0.0) >= MET for a in group)


def _edit(name: str, discrimination: float, warned: set[tuple[str, str]]) -> Edit:
    if (name, "mention") in warned:
        return Edit.MECHANISM
    if (name, "compound") in warned:
        return Edit.SPLIT
    return Edit.RETIRE if discrimination <= 0.0 else Edit.LOWER_WEIGHT
