"""bars.json: the ranges that a study's figures must lie in, and how a figure is held against one.

A bar names a figure, one bound, the end of the interval that is held against it, and where the bar comes from:

    {"figure": "episodes/async-randomized", "above": 0, "on": "low", "source": "goal: ...", "seeds": 5}

A figure that does not reach its bar stays in the file; the check prints MISSED with the value.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.studies.contract import Figure
from coharness.studies.results import Results


class Bound(StrEnum):
    """How a number is held against a bar."""

    MIN = "min"
    "At least this."
    MAX = "max"
    "At most this."
    ABOVE = "above"
    "More than this."
    BELOW = "below"
    "Less than this."
    RANGE = "range"
    "Between these two, both included."


class End(StrEnum):
    """Which number of a figure is held against the bar."""

    VALUE = "value"
    "The estimate."
    LOW = "low"
    "The lower end of its interval."
    HIGH = "high"
    "The upper end of its interval."


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One accepted range."""

    figure: str
    bound: Bound
    limits: tuple[float, ...]
    "Two for a range, else one."
    on: End
    source: str
    "Where the bar comes from."
    seeds: int = 1
    "Least number of seeds that the figure must be computed over."

    def holds(self, number: float) -> bool:
        """Whether a number lies in the accepted range."""
        match self.bound:
            case Bound.MIN:
                return number >= self.limits[0]
            case Bound.MAX:
                return number <= self.limits[0]
            case Bound.ABOVE:
                return number > self.limits[0]
            case Bound.BELOW:
                return number < self.limits[0]
            case Bound.RANGE:
                return self.limits[0] <= number <= self.limits[1]

    def __str__(self) -> str:
        what = "" if self.on is End.VALUE else f"{self.on} end of "
        limits = " to ".join(f"{limit:g}" for limit in self.limits)
        words = {Bound.MIN: "at least", Bound.MAX: "at most", Bound.ABOVE: "above", Bound.BELOW: "below"}
        return f"{what}{self.figure} {words.get(self.bound, 'within')} {limits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarVerdict:
    """A figure held against its bar."""

    bar: Bar
    number: float | None
    "What was held against it; None where the figure has no such end."
    is_met: bool
    reason: str = ""
    "Why it is missed where the number alone does not say so."

    def __str__(self) -> str:
        got = "no interval" if self.number is None else f"{self.number:.4g}"
        reason = f" ({self.reason})" if self.reason else ""
        return f"{'OK    ' if self.is_met else 'MISSED'}  {self.bar}: {got}{reason}"


_KEYS = {"figure", "on", "source", "seeds"}


def read_bars(path: Path) -> tuple[Bar, ...]:
    """The bars of a study.

    Raises:
        ConfigError: the file is missing, is no JSON, or holds something that is no bar; the message names the entry.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); a study keeps its accepted ranges there"
        ) from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
    if not isinstance(data, list):
        raise ConfigError(f"{path} holds a {type(data).__name__}, expected a list of bars")
    return tuple(_bar(f"{path}, entry {number}", entry) for number, entry in enumerate(data, start=1))


def _bar(where: str, entry: Any) -> Bar:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} is a {type(entry).__name__}, expected an object with figure, a bound, on, source")
    bounds = [bound for bound in Bound if bound.value in entry]
    unknown = sorted(set(entry) - _KEYS - {bound.value for bound in Bound})
    if unknown:
        raise ConfigError(
            f"{where} has unknown keys {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))} and a bound"
        )
    if len(bounds) != 1:
        raise ConfigError(f"{where} has {len(bounds)} bounds, expected one of {', '.join(Bound)}")
    missing = [key for key in ("figure", "source") if not isinstance(entry.get(key), str) or not entry[key]]
    if missing:
        raise ConfigError(f"{where} lacks {' and '.join(missing)}")
    bound, on = bounds[0], entry.get("on", End.VALUE.value)
    if on not in [end.value for end in End]:
        raise ConfigError(f"{where}: on is {on!r}, expected one of {', '.join(End)}")
    limits = entry[bound.value] if bound is Bound.RANGE else [entry[bound.value]]
    if not (
        isinstance(limits, list)
        and len(limits) == (2 if bound is Bound.RANGE else 1)
        and all(isinstance(limit, int | float) and not isinstance(limit, bool) for limit in limits)
        and limits == sorted(limits)
    ):
        raise ConfigError(f"{where}: {bound} is {entry[bound.value]!r}, expected a number, or [low, high] for a range")
    seeds = entry.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise ConfigError(f"{where}: seeds is {seeds!r}, expected a whole number of 1 or more")
    return Bar(
        figure=entry["figure"],
        bound=bound,
        limits=tuple(float(limit) for limit in limits),
        on=End(on),
        source=entry["source"],
        seeds=seeds,
    )


def hold(bar: Bar, results: Results) -> BarVerdict:
    """Hold a figure of the results against a bar; a figure that is not there, or has no such end, misses it."""
    figure = results.figure(bar.figure)
    if figure is None:
        return BarVerdict(bar=bar, number=None, is_met=False, reason="the results hold no such figure")
    number = _end(figure, bar.on)
    if number is None:
        return BarVerdict(bar=bar, number=None, is_met=False, reason="an interval needs at least two seeds")
    if len(figure.seeds) < bar.seeds:
        reason = f"over {len(figure.seeds)} seeds, the bar asks for {bar.seeds}"
        return BarVerdict(bar=bar, number=number, is_met=False, reason=reason)
    return BarVerdict(bar=bar, number=number, is_met=bar.holds(number))


def _end(figure: Figure, end: End) -> float | None:
    match end:
        case End.VALUE:
            return figure.value
        case End.LOW:
            return figure.low
        case End.HIGH:
            return figure.high
