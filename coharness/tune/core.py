"""What a search decides: pure functions of the state, so that a journal can be decided again and compared.

Every decision draws from a generator of its own, named by the search's seed and the number of reports before it; so what
one member does never depends on how many numbers another one drew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from coharness.evolution.lineage import clan
from coharness.evolution.selection.contract import Change, Genes, Individual, Population, Selector
from coharness.evolution.selection.rules import Ruled
from coharness.records.ids import derive_seed
from coharness.spaces.discrete import Choice, Ordinal
from coharness.spaces.domain import Value, adapt_step
from coharness.spaces.ray_explore import ray_explore
from coharness.spaces.tree import Tree
from coharness.tune.config import TuneConfig
from coharness.tune.events import Decision, Ended, Event, Order, Report, SegmentId
from coharness.tune.rules import build_rule
from coharness.tune.state import SearchState, Slot, fold, individual

MAX_FAILURES = 5
"""Failures in a row of one place after which the search gives up: then the trainable is broken, not the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What does not change during a search."""

    config: TuneConfig
    space: Tree
    selector: Selector

    @classmethod
    def of(cls, config: TuneConfig) -> "Context":
        """The context of a config."""
        space = config.tree
        guard = config.guard
        inner = build_rule(config.selection, space, config.interval, config.genes)
        selector = Ruled(
            inner=inner,
            newborn_work=float(guard.newborn_intervals * config.interval),
            clone_cap=guard.clone_cap,
            immigrants_below=guard.immigrants_below,
            immigrant_rate=guard.immigrant_rate,
            equal_turns=guard.equal_turns,
        )
        return cls(config=config, space=space, selector=selector)

    def take(self, state: SearchState, event: Event) -> None:
        """Fold one event into the state."""
        fold(state, event, self.config, self.selector)


def beginning(ctx: Context) -> list[Decision]:
    """The first decisions: a member for every place, with the settings that the config names or draws from the prior."""
    config = ctx.config
    found = []
    for index in range(config.members):
        if index < len(config.initial):
            setting: Mapping[str, Value] = config.initial[index]
        else:
            setting = ctx.space.sample(_rng(ctx, "initial", index))
        found.append(
            Decision(
                slot=index,
                member=f"p{index}",
                parents=(),
                hyperparameters=setting,
                step=config.explore.step,
                seed=derive_seed("tune", config.seed, index),
                is_birth=True,
                why="begins",
            )
        )
    return found


def decide(state: SearchState, ctx: Context, index: int) -> Decision:
    """What the member in a place does next, now that it has reported."""
    slot = state.slots[index]
    goes_on = replace(slot.plan, parents=_own(slot), is_birth=False, is_over=False, why="goes on", retests="")
    if slot.num_failures:
        return _recover(state, ctx, index, goes_on)
    if slot.steps >= ctx.config.budget.steps:
        return replace(goes_on, is_over=True, why="has done its steps")
    population = population_of(state, ctx)
    change = ctx.selector.choose(population, slot.plan.member, _rng(ctx, "select", state.num_reports, index))
    return goes_on if change is None else _change(state, ctx, index, change, population, goes_on)


def ending(state: SearchState, ctx: Context) -> Ended | None:
    """Whether the search is over, and why."""
    target = ctx.config.score.target
    if target is not None and state.best is not None and state.best[0] >= ctx.config.sign * target:
        return Ended(why=f"{ctx.config.score.metric} reached {target:g}")
    if state.slots and all(slot.is_over for slot in state.slots):
        return Ended(why="all members have done their steps")
    return None


def order(state: SearchState, ctx: Context, index: int) -> Order:
    """The next interval of the member in a place."""
    slot = state.slots[index]
    plan = slot.plan
    return Order(
        slot=index,
        segment=slot.segment,
        parents=plan.parents,
        hyperparameters=plan.hyperparameters,
        seed=plan.seed,
        reseed=plan.is_birth,
        steps=min(ctx.config.interval, ctx.config.budget.steps - slot.steps),
    )


def take_report(ctx: Context, report: Report) -> Report:
    """A report as it is journaled: one without the score is a failure.

    Returns:
        The report itself, or a failed one that says what is missing.
    """
    score = ctx.config.score
    wanted = [score.metric, *score.cases, *(o.metric for o in score.objectives), *score.descriptor]
    missing = [name for name in wanted if name not in report.metrics]
    if report.error or not missing:
        return report
    got = ", ".join(sorted(report.metrics)) or "nothing"
    return replace(
        report, steps=0, metrics={}, error=f"the trainable's step() gave no {', '.join(missing)}; it gave {got}"
    )


def population_of(state: SearchState, ctx: Context) -> Population:
    """What selection sees."""
    since = state.time - ctx.config.guard.founder_intervals
    members = tuple(
        individual(state, slot, ctx.config, clan(state.births, slot.plan.member, since))
        for slot in state.slots
        if slot.checkpoint is not None
    )
    return Population(
        members=members,
        elites=tuple(replace(elite, clan=clan(state.births, elite.of, since)) for elite in state.elites),
        intervals=tuple(state.intervals),
        pending=tuple(slot.plan.hyperparameters for slot in state.slots if not slot.is_over),
        time=state.time,
    )


def best_member(state: SearchState) -> tuple[SegmentId, float] | None:
    """The checkpoint of the member with the highest evidence among those that stand, and its signed score."""
    standing = [
        slot
        for slot in state.slots
        if slot.checkpoint is not None and slot.evidence.weight > 0 and slot.score is not None
    ]
    if not standing:
        return None
    found = max(standing, key=lambda slot: slot.evidence.mean)
    assert found.checkpoint is not None
    assert found.score is not None
    return found.checkpoint, found.score


def _own(slot: Slot) -> tuple[tuple[SegmentId, float], ...]:
    return () if slot.checkpoint is None else ((slot.checkpoint, 1.0),)


def _change(
    state: SearchState, ctx: Context, index: int, change: Change, population: Population, goes_on: Decision
) -> Decision:
    rng = _rng(ctx, "explore", state.num_reports, index)
    sources = [_source(population, name) for name in change.parents]
    setting, step = _genes(ctx, change, sources, goes_on, rng)
    is_birth = change.copies or not change.parents
    parents = tuple(
        (_checkpoint(state, name), weight) for name, weight in zip(change.parents, change.weights, strict=True)
    )
    is_retest = len(sources) == 1 and bool(sources[0].of) and change.genes is Genes.KEEP
    return replace(
        goes_on,
        member=f"p{state.next_member}" if is_birth else goes_on.member,
        parents=parents,
        hyperparameters=setting,
        step=step,
        seed=derive_seed("tune", ctx.config.seed, state.next_member) if is_birth else goes_on.seed,
        is_birth=is_birth,
        why=change.why,
        retests=sources[0].name if is_retest else "",
    )


def _genes(
    ctx: Context, change: Change, sources: list[Individual], goes_on: Decision, rng: np.random.Generator
) -> tuple[Mapping[str, Value], float]:
    explore = ctx.config.explore
    match change.genes:
        case Genes.GIVEN:
            assert change.hyperparameters is not None
            return change.hyperparameters, goes_on.step
        case Genes.OWN:
            return goes_on.hyperparameters, goes_on.step
        case Genes.DRAW:
            return ctx.space.sample(rng), explore.step
        case Genes.KEEP | Genes.EXPLORE:
            settings = [source.hyperparameters for source in sources]
            setting = settings[0] if len(settings) == 1 else ctx.space.blend(settings, change.weights)
            if change.genes is Genes.KEEP:
                return setting, goes_on.step
    if explore.type == "ray":
        return ray_explore(setting, mutations(ctx.space, rng), Random(int(rng.integers(2**63))),
                           resample_probability=explore.resample), goes_on.step  # fmt: skip
    step = (
        adapt_step(goes_on.step, rng, low=explore.step / 10, high=explore.step * 10) if explore.adapt else goes_on.step
    )
    return ctx.space.perturb(setting, rng, replace(explore.move, step=step)), step


def mutations(space: Tree, rng: np.random.Generator) -> dict[str, Any]:
    """A space as Ray Tune's `hyperparam_mutations`: lists of values, and functions that draw one."""

    def convert(name: str, domain: Any) -> Any:
        if isinstance(domain, Tree):
            return mutations(domain, rng)
        if isinstance(domain, Choice):
            return list(domain.options)
        if isinstance(domain, Ordinal):
            return list(domain.levels)
        return lambda: domain.sample(rng)

    return {name: convert(name, domain) for name, domain in space.fields.items()}


def _recover(state: SearchState, ctx: Context, index: int, goes_on: Decision) -> Decision:
    """After a failure: a copy of the best other member with a setting near its own, or a new beginning where there is none."""
    slot = state.slots[index]
    if slot.num_failures >= MAX_FAILURES:
        return replace(goes_on, is_over=True, why=f"failed {slot.num_failures} times in a row")
    rng = _rng(ctx, "recover", state.num_reports, index)
    others = [s for s in state.slots if s is not slot and s.checkpoint is not None and s.score is not None]
    parents: tuple[tuple[SegmentId, float], ...] = ()
    if others:
        donor = max(others, key=lambda s: s.score if s.score is not None else 0.0)
        assert donor.checkpoint is not None
        parents = ((donor.checkpoint, 1.0),)
        # Once a setting near the donor's failed, too, its own is taken: that one is known to work.
        setting = dict(donor.plan.hyperparameters)
        if slot.num_failures == 1:
            setting = ctx.space.perturb(ctx.space.clip(setting), rng, ctx.config.explore.move)
        why = f"failed; goes on from {donor.plan.member}"
    else:
        setting, why = ctx.space.sample(rng), "failed; begins anew"
    return replace(
        goes_on,
        member=f"p{state.next_member}",
        parents=parents,
        hyperparameters=setting,
        seed=derive_seed("tune", ctx.config.seed, state.next_member),
        is_birth=True,
        why=why,
    )


def _source(population: Population, name: str) -> Individual:
    return next(m for m in (*population.members, *population.elites) if m.name == name)


def _checkpoint(state: SearchState, name: str) -> SegmentId:
    """Where a member stands; an elite is named by its checkpoint."""
    for slot in state.slots:
        if slot.plan.member == name and slot.checkpoint is not None:
            return slot.checkpoint
    return name


def _rng(ctx: Context, purpose: str, *where: int) -> np.random.Generator:
    return np.random.default_rng(derive_seed("tune", ctx.config.seed, purpose, *where))
