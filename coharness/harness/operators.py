"""Operators that make a child of one or two harnesses: typed, bounded by the gene space, pure in (parents, rng).

Each returns the child and nothing else; what changed is read off by `records.harness_diff`. An operator that has nothing to
change returns None, so that a caller can try another.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from coharness.harness.space import GeneSpace
from coharness.records.harness import Harness
from coharness.reward.algebra.mutate import mutate_rule

Mutation = Callable[[Harness, GeneSpace, np.random.Generator], Harness | None]


def set_format(harness: Harness, family: str, answer_format: str) -> Harness:
    """Serve one family in another answer format."""
    return replace(harness, prompt=replace(harness.prompt, formats={**harness.prompt.formats, family: answer_format}))


def mutate_format(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """Another answer format for one random family."""
    families = [f for f in space.families if len(space.formats[f]) > 1]
    if not families:
        return None
    family = families[rng.integers(len(families))]
    current = harness.prompt.formats.get(family, space.formats[family][0])
    others = [f for f in space.formats[family] if f != current]
    return set_format(harness, family, others[rng.integers(len(others))])


def mutate_template(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """Another prompt template."""
    choice = _other(space.templates, harness.prompt.template, rng)
    return None if choice is None else replace(harness, prompt=replace(harness.prompt, template=choice))


def mutate_hint(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """Another hint."""
    choice = _other(space.hints, harness.prompt.hint, rng)
    return None if choice is None else replace(harness, prompt=replace(harness.prompt, hint=choice))


def mutate_shots(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """One worked example more or fewer."""
    value = _step(harness.prompt.num_shots, space.max_shots, rng)
    return None if value is None else replace(harness, prompt=replace(harness.prompt, num_shots=value))


def mutate_retries(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """One retry more or fewer."""
    value = _step(harness.episode.retries, space.max_retries, rng)
    return None if value is None else replace(harness, episode=replace(harness.episode, retries=value))


def mutate_distractors(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """One distractor more or fewer."""
    value = _step(harness.episode.num_distractors, space.max_distractors, rng)
    return None if value is None else replace(harness, episode=replace(harness.episode, num_distractors=value))


SERVING_MUTATIONS: dict[str, Mutation] = {
    "format": mutate_format,
    "template": mutate_template,
    "hint": mutate_hint,
    "shots": mutate_shots,
    "retries": mutate_retries,
    "distractors": mutate_distractors,
}
"""Mutations that the gate can test at pinned weights."""


def mutate_weight(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """Log-normal change of one family's share of training."""
    index = int(rng.integers(len(harness.tasks)))
    gene = harness.tasks[index]
    weight = float(np.clip(gene.weight * np.exp(rng.normal(0.0, 0.5)), 0.1, 10.0))
    if weight == gene.weight:
        return None
    return _with_gene(harness, index, replace(gene, weight=weight))


def mutate_sampling(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """A step in one of the sampling shares, reflected at its bounds."""
    name = ("learnability", "uniform_floor", "explore_formats")[int(rng.integers(3))]
    high = {"learnability": 1.0, "uniform_floor": 0.5, "explore_formats": 0.6}[name]
    value = abs(float(getattr(harness.sampling, name)) + float(rng.normal(0.0, 0.1)))
    value = high - abs(high - value) if value > high else value
    genes: dict[str, Any] = {name: round(max(value, 0.0), 4)}
    return replace(harness, sampling=replace(harness.sampling, **genes))


def mutate_reward(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness | None:
    """One number of the reward rule; nothing, and no draw, where there is no rule."""
    rule = mutate_rule(harness.reward.rule, rng) if harness.reward.rule else None
    return None if rule is None else replace(harness, reward=replace(harness.reward, rule=rule))


TRAINING_MUTATIONS: dict[str, Mutation] = {
    "weight": mutate_weight,
    "sampling": mutate_sampling,
    "reward": mutate_reward,
}
"""Mutations that change only what is trained on."""


def shift_levels(harness: Harness, steps: dict[str, int], space: GeneSpace) -> Harness | None:
    """Move the upper level of some families by the given steps, inside their bounds."""
    genes = []
    for gene in harness.tasks:
        high = gene.level_high + steps.get(gene.family, 0)
        genes.append(replace(gene, level_high=min(max(high, gene.level_low), space.num_levels[gene.family])))
    child = replace(harness, tasks=tuple(genes))
    return None if child == harness else child


def crossover(a: Harness, b: Harness, ancestor: Harness, rng: np.random.Generator) -> Harness:
    """Three-way crossover: each gene takes the side that changed it since the ancestor; a conflict is drawn by lot."""

    def pick(x: object, y: object, origin: object) -> object:
        if x == y or y == origin:
            return x
        if x == origin:
            return y
        return x if rng.random() < 0.5 else y

    formats = {}
    for family in sorted({*a.prompt.formats, *b.prompt.formats}):
        chosen = pick(*(h.prompt.formats.get(family) for h in (a, b, ancestor)))
        if isinstance(chosen, str):
            formats[family] = chosen
    prompt = {
        name: pick(*(getattr(h.prompt, name) for h in (a, b, ancestor))) for name in ("template", "hint", "num_shots")
    }
    episode = {
        name: pick(*(getattr(h.episode, name) for h in (a, b, ancestor)))
        for name in ("retries", "max_tokens", "num_distractors")
    }
    tasks = []
    for gene in a.tasks:
        other, origin = b.task_gene(gene.family), ancestor.task_gene(gene.family)
        chosen_gene = gene if other is None or origin is None else pick(gene, other, origin)
        tasks.append(chosen_gene)
    return replace(
        a,
        tasks=tuple(tasks),  # type: ignore[arg-type]
        sampling=pick(a.sampling, b.sampling, ancestor.sampling),  # type: ignore[arg-type]
        prompt=replace(a.prompt, formats=formats, **prompt),  # type: ignore[arg-type]
        episode=replace(a.episode, **episode),  # type: ignore[arg-type]
        reward=pick(a.reward, b.reward, ancestor.reward),  # type: ignore[arg-type]
    )


def _other(options: tuple[str, ...], current: str, rng: np.random.Generator) -> str | None:
    others = [o for o in options if o != current]
    return others[rng.integers(len(others))] if others else None


def _step(value: int, high: int, rng: np.random.Generator) -> int | None:
    if high == 0:
        return None
    if value == 0:
        return 1
    if value >= high:
        return high - 1
    return value + (1 if rng.random() < 0.5 else -1)


def _with_gene(harness: Harness, index: int, gene: object) -> Harness:
    genes = list(harness.tasks)
    genes[index] = gene  # type: ignore[call-overload]
    return replace(harness, tasks=tuple(genes))
