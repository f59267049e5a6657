"""The tree that makes one value of an attempt's parts; each node is a frozen value with a spelling in YAML.

    exact                                                     a part
    {not: toxicity}                                           1 - x
    {mean: {of: {exact: 1, format: 0.2}}}                     weighted mean; `sum` is the same without normalising
    {power: {exponent: -4, of: {clarity: 1, steps: 1}}}       punishes any dimension that is too low; `soft_min`, `min` too
    {verifier_first: {check: exact, judge: <node>}}           no judge lifts a failed check above a passed one
    {lexicographic: {of: [safe, exact, <node>], levels: [2, 2]}}

Names in `of` may be patterns (`judge/*`, `step/*`), which stand for all parts that match, each with the full weight. A part
without a value drops out of a mean with its weight, as long as `quorum` of the weight is left; else the node has no value.
"""

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from coharness.reward.algebra.combine import power_mean, soft_min, weighted_mean
from coharness.reward.algebra.part import Part, PartOutcome, gravest
from coharness.reward.algebra.precedence import pack, verifier_first

Parts = Mapping[str, Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A node's value, or why it has none."""

    value: float | None
    missing: tuple[str, ...] = ()
    outcome: PartOutcome = PartOutcome.OK
    "The gravest outcome among the missing where there is no value."


class Node(Protocol):
    """A node of the tree."""

    @property
    def names(self) -> frozenset[str]:
        """Names and patterns of the parts it reads."""
        ...

    def evaluate(self, parts: Parts) -> Evaluated:
        """Its value on an attempt's parts."""
        ...

    def components(self, parts: Parts) -> dict[str, tuple[float | None, float]]:
        """Name -> value and weight of what a group mode compares apart; a node that is no sum is one component."""
        ...


def _missing(parts: Parts, name: str) -> Evaluated:
    part = parts.get(name)
    outcome = PartOutcome.ABSTAIN if part is None else part.outcome
    return Evaluated(value=None, missing=(name,), outcome=outcome)


def _alone(node: Node, parts: Parts) -> dict[str, tuple[float | None, float]]:
    return {"value": (node.evaluate(parts).value, 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNode:
    """The value of one part."""

    part: str
    negated: bool = False
    "Whether 1 - x is read, for a part that measures something bad."

    @property
    def names(self) -> frozenset[str]:
        """The part."""
        return frozenset({self.part})

    def evaluate(self, parts: Parts) -> Evaluated:
        """The part's value; one that was not given abstains."""
        part = parts.get(self.part)
        if part is None or part.value is None:
            return _missing(parts, self.part)
        return Evaluated(value=1.0 - part.value if self.negated else part.value)

    def components(self, parts: Parts) -> dict[str, tuple[float | None, float]]:
        """Itself."""
        return {self.part: (self.evaluate(parts).value, 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A weighted branch of a mean."""

    node: Node
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """A mean of some kind over weighted branches."""

    kind: str
    "`sum`, `mean`, `power`, `soft_min` or `min`."
    terms: tuple[Term, ...]
    shape: float = 1.0
    "Exponent of a power mean, temperature of a soft-min."
    quorum: float = 0.5
    "Least share of the weight that must be left when parts are missing."

    @property
    def names(self) -> frozenset[str]:
        """All parts of all branches."""
        return frozenset().union(*(term.node.names for term in self.terms))

    def evaluate(self, parts: Parts) -> Evaluated:
        """The mean over the branches that have a value, or none where too little weight is left."""
        terms = self._expanded(parts)
        results = [(term, term.node.evaluate(parts)) for term in terms]
        missing = tuple(name for _, result in results for name in result.missing)
        present = [(result.value, term.weight) for term, result in results if result.value is not None]
        total = math.fsum(abs(term.weight) for term in terms)
        left = math.fsum(abs(weight) for _, weight in present)
        if not present or left < self.quorum * total:
            outcome = gravest(result.outcome for _, result in results if result.value is None)
            return Evaluated(value=None, missing=missing, outcome=outcome)
        values, weights = [value for value, _ in present], [weight for _, weight in present]
        return Evaluated(value=self._combine(values, weights, total / left), missing=missing)

    def _combine(self, values: list[float], weights: list[float], scale: float) -> float:
        match self.kind:
            case "sum":
                # Scaled up for what is missing: an attempt whose judge failed is not worth less than its peers.
                return scale * math.fsum(w * x for w, x in zip(weights, values, strict=True))
            case "mean":
                return weighted_mean(values, weights)
            case "power":
                return power_mean(values, weights, self.shape)
            case "soft_min":
                return soft_min(values, weights, self.shape)
            case "min":
                return min(values)
        raise AssertionError(f"no combination {self.kind!r}")

    def components(self, parts: Parts) -> dict[str, tuple[float | None, float]]:
        """Each branch under its parts' names."""
        return {
            "+".join(sorted(term.node.names)): (term.node.evaluate(parts).value, term.weight)
            for term in self._expanded(parts)
        }

    def _expanded(self, parts: Parts) -> tuple[Term, ...]:
        expanded = []
        for term in self.terms:
            node = term.node
            if isinstance(node, PartNode) and is_pattern(node.part):
                # A pattern that nothing matches is one missing part: it must not vanish from the quorum.
                found = sorted(fnmatch.filter(parts, node.part)) or [node.part]
                expanded += [Term(node=PartNode(part=name, negated=node.negated), weight=term.weight) for name in found]
            else:
                expanded.append(term)
        return tuple(expanded)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierFirst:
    """A check decides the half, a judge the place in it; see `precedence.verifier_first`."""

    check: str
    judge: Node
    partial: str | None = None
    cap: float = 0.9
    without_judge: str = "abstain"
    "`abstain`, or `lower_end`: an attempt that no judge scored gets what the check alone guarantees."

    @property
    def names(self) -> frozenset[str]:
        """The check and what the judge reads."""
        return frozenset({self.check}) | self.judge.names | ({self.partial} if self.partial else frozenset())

    def evaluate(self, parts: Parts) -> Evaluated:
        """The packed value; none without the check, whatever a judge says."""
        check = parts.get(self.check)
        if check is None or check.value is None:
            return _missing(parts, self.check)
        judged = self.judge.evaluate(parts)
        if judged.value is None and self.without_judge != "lower_end":
            return judged
        partial = parts.get(self.partial) if self.partial else None
        value = verifier_first(
            check.value == 1.0,
            min(max(judged.value or 0.0, 0.0), 1.0),
            partial=None if partial is None else partial.value,
            cap=self.cap,
        )
        return Evaluated(value=value, missing=judged.missing)

    def components(self, parts: Parts) -> dict[str, tuple[float | None, float]]:
        """The whole: its halves are not to be compared apart."""
        return _alone(self, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexicographic:
    """Branches in order of precedence; see `precedence.pack`."""

    of: tuple[Node, ...]
    levels: tuple[int, ...]

    @property
    def names(self) -> frozenset[str]:
        """All parts of all branches."""
        return frozenset().union(*(node.names for node in self.of))

    def evaluate(self, parts: Parts) -> Evaluated:
        """The packed value; none as soon as one branch has none, since order cannot be judged around a hole."""
        results = [node.evaluate(parts) for node in self.of]
        missing = tuple(name for result in results for name in result.missing)
        values = [result.value for result in results if result.value is not None]
        if len(values) < len(results):
            outcome = gravest(result.outcome for result in results if result.value is None)
            return Evaluated(value=None, missing=missing, outcome=outcome)
        return Evaluated(value=pack(values, self.levels), missing=missing)

    def components(self, parts: Parts) -> dict[str, tuple[float | None, float]]:
        """The whole."""
        return _alone(self, parts)


def is_pattern(name: str) -> bool:
    """Whether a name stands for several parts."""
    return any(c in name for c in "*?[")
