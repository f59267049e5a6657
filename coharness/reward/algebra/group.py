"""Comparing the attempts of one group: from rewards to training scores.

Every function keeps the order of its input and gives None where a reward has no value: such an attempt stays out of every
mean, spread and rank, and whoever trains drops it. A violated attempt has a value, its rule's floor, and takes part.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coharness.reward.algebra.pareto import front_scores
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.algebra.reward import Reward
from coharness.reward.algebra.rule import GroupMode, Rule

Scores = list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """Training scores of a group."""

    values: Scores
    collapsed: tuple[str, ...] = ()
    "Components without any spread in the group, which say nothing about who is better."


def group_scores(rule: Rule, rewards: Sequence[Reward]) -> GroupScores:
    """Training scores by the rule's group mode."""
    own = [reward.value for reward in rewards]
    match rule.group:
        case GroupMode.NONE:
            return GroupScores(values=own)
        case GroupMode.RANK:
            return GroupScores(values=mid_ranks(own))
        case GroupMode.PARETO:
            return GroupScores(values=_pareto(rule, rewards))
        case GroupMode.GDPO:
            return _gdpo(rule, rewards)


def standardised(values: Sequence[float | None]) -> Scores:
    """(x - mean) / spread over those that have a value; all 0 without any spread."""
    known = [value for value in values if value is not None]
    if not known:
        return list(values)
    mean = math.fsum(known) / len(known)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in known) / len(known))
    if spread <= 1e-9:
        return [None if value is None else 0.0 for value in values]
    return [None if value is None else (value - mean) / spread for value in values]


def mid_ranks(values: Sequence[float | None]) -> Scores:
    """Rank in the group as a number in [0, 1], ties at their middle; .5 where there is only one."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2:
        return [None if value is None else 0.5 for value in values]

    def rank(value: float) -> float:
        below = sum(other < value for other in known)
        equal = sum(other == value for other in known)
        return (below + (equal - 1) / 2) / (len(known) - 1)

    return [None if value is None else rank(value) for value in values]


def feasible_advantages(values: Sequence[float | None], feasible: Sequence[bool], min_feasible: int = 2) -> Scores:
    """Advantages whose baseline is the feasible attempts alone, once there are `min_feasible` of them.

    Infeasible attempts are measured against that baseline and never above zero, so that a crowd of cheats cannot make an
    honest attempt look bad. With fewer feasible ones the whole group is its own baseline. Source: Xu et al. (2025), the
    feasibility gate of direct reasoning optimisation.

    Raises:
        ValueError: values and flags that do not match.
    """
    if len(values) != len(feasible):
        raise ValueError(f"got {len(values)} values and {len(feasible)} flags, expected as many")
    baseline = [v for v, fine in zip(values, feasible, strict=True) if fine and v is not None]
    if len(baseline) < min_feasible:
        return standardised(values)
    mean = math.fsum(baseline) / len(baseline)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in baseline) / len(baseline)) or 1.0
    scores: Scores = []
    for value, fine in zip(values, feasible, strict=True):
        if value is None:
            scores.append(None)
        else:
            advantage = (value - mean) / spread
            scores.append(advantage if fine else min(advantage, 0.0))
    return scores


def _gdpo(rule: Rule, rewards: Sequence[Reward]) -> GroupScores:
    """Liu et al. (2026): normalise each component, weigh, add. Joint normalisation gives distinct mixes the same advantage."""
    rows = [rule.value.components(reward.parts) for reward in rewards]
    counted = [reward.outcome is PartOutcome.OK for reward in rewards]
    names = sorted({name for row in rows for name in row})
    totals = [0.0] * len(rewards)
    collapsed = []
    for name in names:
        column = [row.get(name, (None, 0.0))[0] if fine else None for row, fine in zip(rows, counted, strict=True)]
        weight = next((row[name][1] for row in rows if name in row), 0.0)
        scaled = standardised(column)
        if not any(scaled):
            collapsed.append(name)
        totals = [total + weight * (z or 0.0) for total, z in zip(totals, scaled, strict=True)]
    for penalty in rule.penalties:
        column = [
            reward.penalties.get(penalty.part) if fine else None for reward, fine in zip(rewards, counted, strict=True)
        ]
        totals = [total - (cost or 0.0) for total, cost in zip(totals, column, strict=True)]
    ok = [total for total, fine in zip(totals, counted, strict=True) if fine]
    # A violated attempt stands below all others: at their least, minus one spread.
    floor = min(ok, default=0.0) - 1.0
    values: Scores = [
        None if reward.value is None else (total if fine else floor)
        for reward, total, fine in zip(rewards, totals, counted, strict=True)
    ]
    return GroupScores(values=values, collapsed=tuple(collapsed))


def _pareto(rule: Rule, rewards: Sequence[Reward]) -> Scores:
    points: list[tuple[int, tuple[float, ...]]] = []
    for index, reward in enumerate(rewards):
        if reward.outcome is PartOutcome.OK:
            components = rule.value.components(reward.parts)
            # What a mean lost with a missing part counts as nothing here: dominance needs every dimension.
            if all(value is not None for value, _ in components.values()):
                points.append((index, tuple(components[name][0] or 0.0 for name in sorted(components))))
    scores: Scores = [0.0 if r.outcome is PartOutcome.VIOLATED else None for r in rewards]
    for (index, _), score in zip(points, front_scores([point for _, point in points]), strict=True):
        scores[index] = score
    return scores
