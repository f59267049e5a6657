"""What a config would run, told before anything is started: the content of `coharness run CONFIG --dry-run`.

The figures are bounds and plain divisions of the config's own numbers; nothing is simulated.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coharness.config.schema import RunConfig, Schedule
from coharness.harness.space import evaluation_mix

if TYPE_CHECKING:
    from coharness.tasks.sources import TaskSources


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPlan:
    """One family as a run would use it."""

    name: str
    num_levels: int
    num_sealed_levels: int
    "Levels that stand in the sealed report: those with enough distinct tasks, or all where no level has."
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do."""

    families: tuple[FamilyPlan, ...]
    num_policies: int
    num_harnesses: int
    budget_rollouts: int
    budget_minutes: float
    test_rollouts: int
    "Most episodes that promotion tests, races and A/A tests may take."
    train_rollouts: int
    "Least episodes that are left for training groups."
    num_updates: int
    "Updates that these give, over all members; 0 where the schedule trains nothing."
    track_rollouts: int
    "Episodes for the curves; not charged."
    sealed_tasks: int
    "Draws for the sealed report; a finite source may give one task more than once, and then there are fewer."
    sealed_rollouts: int
    "Episodes of the sealed report's four cells and its two votes; not charged. Milestones come on top."
    vote_k: int
    "Samples a task of the majority vote at equal rollouts."


def plan_of(config: RunConfig, sources: "TaskSources") -> Plan:
    """The plan of a config whose task sources are built."""
    sealed = Counter(family for family, _ in evaluation_mix(sources))
    families = tuple(
        FamilyPlan(
            name=spec.name,
            num_levels=spec.num_levels,
            num_sealed_levels=sealed[spec.name],
            formats=spec.formats,
        )
        for spec in sources.families.values()
    )
    rollouts = config.budget.rollouts
    decides = config.schedule is not Schedule.FROZEN
    trains = config.schedule not in (Schedule.FROZEN, Schedule.HARNESS_ONLY)
    tests = int(rollouts * config.gate.max_share) if decides else 0
    sealed_tasks = config.evaluation.sealed_per_cell * sum(family.num_sealed_levels for family in families)
    vote_k = min(config.evaluation.best_of_k, math.ceil(rollouts / sealed_tasks)) if sealed_tasks else 0
    episodes_an_update = config.training.group_size * config.training.groups_per_update
    return Plan(
        families=families,
        num_policies=config.population.num_policies,
        num_harnesses=config.population.num_harnesses,
        budget_rollouts=rollouts,
        budget_minutes=config.budget.minutes,
        test_rollouts=tests,
        train_rollouts=rollouts - tests,
        num_updates=(rollouts - tests) // episodes_an_update if trains else 0,
        track_rollouts=(rollouts // config.evaluation.track_every + 1) * config.evaluation.track_tasks,
        sealed_tasks=sealed_tasks,
        sealed_rollouts=sealed_tasks * (4 + vote_k),
        vote_k=vote_k,
    )


def plan_lines(plan: Plan, config: RunConfig) -> Iterator[str]:
    """The plan in words, a line each."""
    yield (
        f"schedule {config.schedule}, fleet {config.fleet.type}: {config.fleet.rollout_workers} rollout workers, "
        f"{config.fleet.trainers} trainers"
    )
    yield f"population: {plan.num_policies} policies × {plan.num_harnesses} harnesses on base {config.policy.base}"
    yield f"tasks: {len(plan.families)} families"
    for family in plan.families:
        yield (
            f"  {family.name:<15} levels 1–{family.num_levels} ({family.num_sealed_levels} sealed), "
            f"formats {', '.join(family.formats)}"
        )
    yield f"budget: {plan.budget_rollouts:,} rollouts, at most {plan.budget_minutes:g} minutes"
    yield f"  at most  {plan.test_rollouts:>10,} for promotion tests, races and A/A tests"
    yield f"  at least {plan.train_rollouts:>10,} for training groups, about {plan.num_updates:,} updates"
    yield "not charged:"
    yield f"  {plan.track_rollouts:>10,} for the curves"
    sealed = f"{plan.sealed_tasks:,} tasks × (4 cells + a vote of {plan.vote_k})"
    yield f"  {plan.sealed_rollouts:>10,} for the sealed report: {sealed}"
    yield f"run folder: {config.run_dir}"
