"""Selection rules in a run: which member gives way to which other after an assessment, one exploit at a time.

A run reads all its members at one moment, on shared tasks, and replaces at most one of them an assessment. So a rule, which is
asked about one member, is asked about every member that may go, the weakest first, until it names somebody to copy. What a rule
sees is the assessed fitness and, as cases, its cells of the evaluation mix; rules that read curves, several objectives or
archives do not fit what a run keeps.

Invariants: a pure function; a member's draws depend on its own seed alone, so that asking again while others come and go never
rolls the dice anew.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import numpy as np

from coharness.evolution.exploit import Candidate, Exploit
from coharness.evolution.selection.contract import Individual, Population, Score, Selector
from coharness.evolution.selection.lexicase import Lexicase
from coharness.evolution.selection.rules import Ruled
from coharness.evolution.selection.tournament import Tournament
from coharness.evolution.selection.truncation import Truncation
from coharness.records.ids import PolicyId
from coharness.stats.beta import BetaEvidence

RuleName = Literal["truncation", "tournament", "lexicase"]
RUN_RULES: Final[Mapping[RuleName, Selector]] = {
    "truncation": Truncation(),
    "tournament": Tournament(),
    "lexicase": Lexicase(),
}
"""Rules that a run may use in place of posterior exploit, at their own defaults."""


def exploit_by_rule(
    rule: Selector,
    candidates: Sequence[Candidate],
    cases: Mapping[PolicyId, Sequence[BetaEvidence]],
    clone_cap: float,
    generator: Callable[[PolicyId], np.random.Generator],
) -> Exploit | None:
    """The first exploit that a rule asks for, None where it lets everybody go on.

    Args:
        rule: any that copies one other member.
        candidates: all members.
        cases: evidence of each member in the cells of the mix, the same cells for all.
        clone_cap: largest share of the population that may descend from one ancestor.
        generator: a member's own random numbers, the same whenever it is asked about after one assessment.
    """
    population = Population(members=tuple(_individual(member, cases[member.policy]) for member in candidates))
    ruled = Ruled(inner=rule, clone_cap=clone_cap)
    places = {member.policy: place for place, member in enumerate(candidates)}
    ready = [m for m in candidates if not (m.is_newborn or m.is_busy or m.fitness.num_empty)]
    for loser in sorted(ready, key=lambda m: (m.fitness.mean, places[m.policy])):
        change = ruled.choose(population, loser.policy, generator(loser.policy))
        if change is not None and change.copies:
            donor = candidates[places[PolicyId(change.parents[0])]]
            probability = donor.fitness.probability_above(loser.fitness)
            return Exploit(loser=loser.policy, donor=donor.policy, probability=probability)
    return None


def _individual(member: Candidate, cells: Sequence[BetaEvidence]) -> Individual:
    return Individual(
        name=member.policy,
        fitness=member.fitness,
        hyperparameters={},
        cases=tuple(Score(cell.mean, cell.variance**0.5) for cell in cells),
        clan=member.ancestor,
    )
