"""A reward rule: hard floors, a tree of values, penalties, and how a group is compared. A harness gene, spelled in YAML.

    value: {verifier_first: {check: exact, partial: partial, judge: {power: {exponent: -4, of: {judge/*: 1}}}}}
    floors: [{part: judge/no_injection, at_least: 0.5}]
    penalties: [{part: overlong, weight: 0.3}]
    floor_value: 0.0
    group: none

Floors come first and are never averaged: an attempt below one has the outcome `violated` and the fixed `floor_value`. A floor
or a cost that could not be measured leaves the attempt without a reward, since breaking the instrument must not pay. With floors,
no penalty takes an attempt below `floor_value`; set it low enough to leave penalties their room.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coharness.records.errors import ConfigError
from coharness.reward.algebra.lagrangian import Multiplier, PidGains
from coharness.reward.algebra.nodes import Node
from coharness.reward.algebra.part import Part, PartOutcome, by_name, gravest
from coharness.reward.algebra.reading import (
    keys,
    mapping_of,
    name_of,
    node_from_json,
    node_to_json,
    number_of,
    objects_of,
    word_of,
)
from coharness.reward.algebra.reward import Reward


class GroupMode(StrEnum):
    """How the rewards of a group's attempts become training scores."""

    NONE = "none"
    "Each attempt's own value."
    GDPO = "gdpo"
    "Each component standardised within the group before they are weighed."
    PARETO = "pareto"
    "Place in the order of non-dominated fronts."
    RANK = "rank"
    "Place in the order of values; for lexicographic rules whose steps mean nothing as distances."


@dataclass(frozen=True, slots=True, kw_only=True)
class HardFloor:
    """A part that must be at least this."""

    part: str
    at_least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """A cost that is taken off: weight times the part's value."""

    part: str
    weight: float = 0.0
    "λ, or its start where `gains` move it."
    gains: PidGains | None = None

    @property
    def multiplier(self) -> Multiplier | None:
        """The controller before any observation; None where the weight is fixed."""
        return None if self.gains is None else Multiplier.start(self.gains, self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How parts become a reward."""

    value: Node
    floors: tuple[HardFloor, ...] = ()
    penalties: tuple[Penalty, ...] = ()
    floor_value: float = 0.0
    group: GroupMode = GroupMode.NONE

    @property
    def names(self) -> frozenset[str]:
        """Names and patterns of all parts that the rule reads."""
        return self.value.names | {floor.part for floor in self.floors} | {p.part for p in self.penalties}

    def evaluate(self, parts: Iterable[Part], multipliers: Mapping[str, float] | None = None) -> Reward:
        """The reward of one attempt.

        Args:
            parts: what was measured of it, each name once.
            multipliers: part -> λ where a controller has moved it; the rule's own weights elsewhere.

        Raises:
            ValueError: a name stands twice among the parts.
        """
        named = by_name(parts)
        broken = [part.name for part in named.values() if part.outcome is PartOutcome.VIOLATED]
        unknown: list[str] = []
        for floor in self.floors:
            value = _value(named, floor.part)
            if value is None:
                unknown.append(floor.part)
            elif value < floor.at_least:
                broken.append(floor.part)
        if broken:
            violated = tuple(dict.fromkeys(broken))
            return Reward(value=self.floor_value, outcome=PartOutcome.VIOLATED, parts=named, violated=violated)
        unknown += [p.part for p in self.penalties if _value(named, p.part) is None]
        if unknown:
            outcome = gravest(named[n].outcome if n in named else PartOutcome.ABSTAIN for n in unknown)
            return Reward(value=None, outcome=outcome, parts=named, missing=tuple(dict.fromkeys(unknown)))
        result = self.value.evaluate(named)
        if result.value is None:
            return Reward(value=None, outcome=result.outcome, parts=named, missing=result.missing)
        costs = {
            p.part: (multipliers or {}).get(p.part, p.weight) * (_value(named, p.part) or 0.0) for p in self.penalties
        }
        value = result.value - sum(costs.values())
        # Where there are floors, no cost may push an honest attempt below one that broke a floor.
        return Reward(
            value=max(value, self.floor_value) if self.floors else value,
            outcome=PartOutcome.OK,
            parts=named,
            missing=result.missing,
            penalties=costs,
        )

    def to_json(self) -> dict[str, Any]:
        """The rule as JSON values; `rule_from_json` is the inverse."""
        return {
            "value": node_to_json(self.value),
            "floors": [{"part": f.part, "at_least": f.at_least} for f in self.floors],
            "penalties": [_penalty_to_json(p) for p in self.penalties],
            "floor_value": self.floor_value,
            "group": self.group.value,
        }


def _value(parts: Mapping[str, Part], name: str) -> float | None:
    part = parts.get(name)
    return None if part is None else part.value


def _penalty_to_json(penalty: Penalty) -> dict[str, Any]:
    data: dict[str, Any] = {"part": penalty.part, "weight": penalty.weight}
    if penalty.gains is not None:
        data |= {name: getattr(penalty.gains, name) for name in _GAINS}
    return data


_GAINS = ("limit", "ki", "kp", "kd", "max_multiplier", "confidence_z")


def rule_from_json(data: Any, where: str = "reward.rule") -> Rule:
    """Read a rule from JSON values.

    Raises:
        ConfigError: an unknown key or kind, a number out of range; the message names the place and the likely fix.
    """
    data = mapping_of(data, where)
    keys(data, ("value",), ("floors", "penalties", "floor_value", "group"), where)
    return Rule(
        value=node_from_json(data["value"], f"{where}.value", top=True),
        floors=tuple(_floor(d, at) for d, at in objects_of(data.get("floors", []), f"{where}.floors")),
        penalties=tuple(_penalty(d, at) for d, at in objects_of(data.get("penalties", []), f"{where}.penalties")),
        floor_value=number_of(data.get("floor_value", 0.0), f"{where}.floor_value"),
        group=GroupMode(word_of(data.get("group", "none"), tuple(GroupMode), f"{where}.group")),
    )


def _floor(data: Mapping[str, Any], where: str) -> HardFloor:
    keys(data, ("part", "at_least"), (), where)
    return HardFloor(
        part=name_of(data["part"], f"{where}.part"),
        at_least=number_of(data["at_least"], f"{where}.at_least", low=0.0, high=1.0),
    )


def _penalty(data: Mapping[str, Any], where: str) -> Penalty:
    keys(data, ("part",), ("weight", *_GAINS), where)
    part, weight = (
        name_of(data["part"], f"{where}.part"),
        number_of(data.get("weight", 0.0), f"{where}.weight", low=0.0),
    )
    given = {name: number_of(data[name], f"{where}.{name}", low=0.0) for name in _GAINS if name in data}
    if not given:
        return Penalty(part=part, weight=weight)
    if "limit" not in given:
        raise ConfigError(f"{where} moves its weight and has no limit; say which mean cost is allowed, e.g. limit: 0.1")
    try:
        return Penalty(part=part, weight=weight, gains=PidGains(**given))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
