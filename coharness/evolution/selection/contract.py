"""What a selection rule sees, and what it may ask for.

A rule is asked when a member has reported: may it go on as it is, or should it become something else? Only the member that
is asked about changes, so nobody's work is thrown away in flight and there is no barrier. A member is read at its last
report.

    Individual + Individual + ... = Population ──▶ Selector.choose(population, ready, rng) ──▶ Change | None
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np

from coharness.evolution.fitness import Judged
from coharness.spaces.domain import Value


class Score(NamedTuple):
    """A measured number; higher is better."""

    mean: float
    error: float = 0.0
    "Standard error of the mean."


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual:
    """A member at its last report."""

    name: str
    "A member's name; of an elite, the name of its saved state."
    fitness: Judged
    hyperparameters: Mapping[str, Value]
    work: float = 0.0
    "Work in its weights, its ancestors' included: steps, tokens, updates."
    age: float = 0.0
    "Work since it was born."
    curve: tuple[tuple[float, float], ...] = ()
    "(work, score) of its last reports, its ancestors' included, oldest first."
    cases: tuple[Score, ...] = ()
    "Scores on shared cases, the same ones for all members: tasks, families, seeds."
    objectives: tuple[Score, ...] = ()
    "Scores on several objectives, costs negated."
    descriptor: tuple[float, ...] = ()
    "What kind of behaviour it shows; says nothing of how good it is."
    clan: str = ""
    "The founder it descends from most; see `coharness.evolution.lineage`."
    duration_s: float = 0.0
    "Mean seconds between its reports."
    is_fresh: bool = False
    "It has not reported since it was born: what is known of it is its parent's."
    is_busy: bool = False
    "A change of it is in flight."
    of: str = ""
    "Of an elite, or of a newcomer to the archive: the member whose state it is."
    retests: str = ""
    "Of a newcomer: the elite that it went on from with the same setting."

    @property
    def is_known(self) -> bool:
        """Whether there is evidence of all its parts."""
        return self.fitness.num_empty == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One member's work between two reports, under one setting."""

    hyperparameters: Mapping[str, Value]
    begin: float
    "Work before it."
    end: float
    "Work after it."
    gain: float
    "How much the score rose."
    time: float
    "When it ended, in intervals of one member since the search began."


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """All that a rule may look at."""

    members: tuple[Individual, ...]
    elites: tuple[Individual, ...] = ()
    "Kept by `Selector.remember`; they can be parents and do not train."
    intervals: tuple[Interval, ...] = ()
    "Finished intervals of all members ever, oldest first."
    pending: tuple[Mapping[str, Value], ...] = ()
    "Hyperparameters that members train under right now."
    time: float = 0.0
    "Now, on the clock of `Interval.time`."

    def member(self, name: str) -> Individual:
        """The member of this name.

        Raises:
            ValueError: nobody has it.
        """
        for member in self.members:
            if member.name == name:
                return member
        raise ValueError(f"no member {name!r}; there are {', '.join(m.name for m in self.members) or 'none'}")

    def others(self, name: str) -> Iterator[Individual]:
        """Members with evidence, without this one."""
        return (member for member in self.members if member.name != name and member.is_known)


class Genes(StrEnum):
    """Where the hyperparameters of a changed member come from."""

    KEEP = "keep"
    "From its parents, blended by their weights, unchanged."
    OWN = "own"
    "Its own, unchanged: only weights are taken over."
    EXPLORE = "explore"
    "From its parents, and moved."
    DRAW = "draw"
    "From the prior."
    GIVEN = "given"
    "From the rule itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of a member."""

    member: str
    parents: tuple[str, ...]
    "Whose weights it takes: none for the initial ones, its own name to keep its own, several for a merge."
    weights: tuple[float, ...]
    "One a parent, summing to 1."
    genes: Genes
    hyperparameters: Mapping[str, Value] | None = None
    "Where the rule gives them itself."
    why: str = ""
    probability: float | None = None
    "Posterior probability that the parent is better, where the rule knows it."

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.weights):
            raise ValueError(f"change of {self.member}: {len(self.parents)} parents, {len(self.weights)} weights")
        if (self.genes is Genes.GIVEN) != (self.hyperparameters is not None):
            raise ValueError(f"change of {self.member}: hyperparameters belong to Genes.GIVEN and to nothing else")
        if not self.parents and self.genes in (Genes.KEEP, Genes.EXPLORE):
            raise ValueError(
                f"change of {self.member}: without parents there is nothing to {self.genes}; use Genes.DRAW"
            )

    @property
    def copies(self) -> bool:
        """Whether it takes over somebody else's weights."""
        return any(parent != self.member for parent in self.parents)


def clone(
    member: str, parent: str, why: str, *, genes: Genes = Genes.EXPLORE, probability: float | None = None
) -> Change:
    """The change that makes a member a copy of one parent."""
    return Change(member=member, parents=(parent,), weights=(1.0,), genes=genes, why=why, probability=probability)


class Selector(Protocol):
    """A selection rule; frozen, and a pure function of what it is given."""

    def choose(self, population: Population, ready: str, rng: np.random.Generator) -> Change | None:
        """What becomes of the member `ready`, None where it goes on as it is."""
        ...

    def remember(self, elites: tuple[Individual, ...], newcomer: Individual) -> tuple[Individual, ...]:
        """The archive after a report; most rules keep none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetful:
    """The half of a selector that keeps no archive."""

    def remember(self, elites: tuple[Individual, ...], newcomer: Individual) -> tuple[Individual, ...]:
        """Nothing is kept."""
        return ()


def pick(options: "tuple[Any, ...] | list[Any]", rng: np.random.Generator) -> Any:
    """One of several, each as likely."""
    return options[int(rng.integers(len(options)))]
