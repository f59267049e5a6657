"""Judgments: what a judge said of one candidate or pair, what it cost, and which versions said it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coharness.records.ids import JSON
from coharness.reward.algebra.part import PartOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was paid; nothing for a cached judgment."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Who judged: judgments of different versions are never compared or mixed."""

    model: str
    rubric: str
    "Name and content hash, `maths@1f2e…`."
    protocol: int
    "Version of prompts and parsing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One judgment.

    Invariant: `value` is None exactly where the outcome is not OK.
    """

    outcome: PartOutcome
    value: float | None
    "Score in [0, 1]; for a pair the preference for the first candidate in [-1, 1]."
    criteria: Mapping[str, float] = field(default_factory=dict)
    "Criterion -> value in the same range."
    reasons: Mapping[str, str] = field(default_factory=dict)
    "Criterion -> the judge's reason, written before its verdict."
    flags: tuple[str, ...] = ()
    "What was suspicious in the candidates."
    reason: str = ""
    "Why there is no value."
    versions: Versions
    cost: Cost = Cost()
    cached: bool = False

    def __post_init__(self) -> None:
        if (self.outcome is PartOutcome.OK) != (self.value is not None):
            raise ValueError(f"a judgment with outcome {self.outcome} has value {self.value!r}; only ok has one")

    def to_json(self) -> dict[str, JSON]:
        """The judgment as JSON values."""
        return {
            "outcome": self.outcome.value,
            "value": self.value,
            "criteria": dict(self.criteria),
            "reasons": dict(self.reasons),
            "flags": list(self.flags),
            "reason": self.reason,
            "versions": {
                "model": self.versions.model,
                "rubric": self.versions.rubric,
                "protocol": self.versions.protocol,
            },
            "cost": {"calls": self.cost.calls, "tokens_in": self.cost.tokens_in, "tokens_out": self.cost.tokens_out},
            "cached": self.cached,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Candidates in order, from several listwise judgments in different orders."""

    outcome: PartOutcome
    order: tuple[int, ...] = ()
    "Indices of the candidates, best first; empty where there is none."
    points: tuple[float, ...] = ()
    "Share of the others that each candidate was placed above, in [0, 1]."
    agreement: float | None = None
    "Kendall's τ-b between the passes; None with one."
    reason: str = ""
    flags: tuple[str, ...] = ()
    versions: Versions
    cost: Cost = Cost()
    cached: bool = False

    def to_json(self) -> dict[str, JSON]:
        """The ranking as JSON values."""
        return {
            "outcome": self.outcome.value,
            "order": list(self.order),
            "points": list(self.points),
            "agreement": self.agreement,
            "reason": self.reason,
            "flags": list(self.flags),
            "versions": {
                "model": self.versions.model,
                "rubric": self.versions.rubric,
                "protocol": self.versions.protocol,
            },
            "cost": {"calls": self.cost.calls, "tokens_in": self.cost.tokens_in, "tokens_out": self.cost.tokens_out},
            "cached": self.cached,
        }
