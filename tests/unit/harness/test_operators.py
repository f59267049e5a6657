"""Operators: children stay inside the gene space, differ from their parents, and depend on nothing but their arguments."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.config.schema import RunConfig
from coharness.harness.operators import (
    SERVING_MUTATIONS,
    TRAINING_MUTATIONS,
    crossover,
    mutate_format,
    set_format,
    shift_levels,
)
from coharness.harness.space import GeneSpace, gene_space, initial_harness
from coharness.records.harness import Harness, TaskGene
from coharness.reward.algebra import rule_from_json
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(max_level=4)])
WIDE = {
    "templates": ("bare", "cue_first", "twice", "bracketed"),
    "hints": ("none", "steps", "check"),
    "max_shots": 2,
    "max_retries": 1,
    "max_distractors": 3,
}
RULE = rule_from_json({"value": {"mean": {"of": {"exact": 1.0, "length": 0.2}}}}).to_json()
ALL_MUTATIONS = {**SERVING_MUTATIONS, **TRAINING_MUTATIONS}


def space_of(**harness: object) -> tuple[GeneSpace, Harness]:
    config = RunConfig.model_validate({"run_dir": str(Path("unused")), "harness": harness})
    space = gene_space(config, SOURCES)
    return space, initial_harness(config, SOURCES, space)


SPACE, H0 = space_of(**WIDE)


def assert_inside(harness: Harness, space: GeneSpace) -> None:
    for gene in harness.tasks:
        assert 1 <= gene.level_low <= gene.level_high <= space.num_levels[gene.family]
        assert 0.1 <= gene.weight <= 10.0
        assert harness.prompt.formats[gene.family] in space.formats[gene.family]
    assert tuple(sorted(gene.family for gene in harness.tasks)) == space.families
    assert harness.prompt.template in space.templates
    assert harness.prompt.hint in space.hints
    assert 0 <= harness.prompt.num_shots <= space.max_shots
    assert 0 <= harness.episode.retries <= space.max_retries
    assert 0 <= harness.episode.num_distractors <= space.max_distractors
    sampling = harness.sampling
    assert 0 <= sampling.learnability <= 1
    assert 0 <= sampling.uniform_floor <= 0.5
    assert 0 <= sampling.explore_formats <= 0.6


def walk(names: list[str], seed: int) -> Harness:
    harness, rng = H0, np.random.default_rng(seed)
    for name in names:
        harness = ALL_MUTATIONS[name](harness, SPACE, rng) or harness
    return harness


walks = st.builds(walk, st.lists(st.sampled_from(sorted(ALL_MUTATIONS)), max_size=12), st.integers(0, 2**32))


@settings(max_examples=50, deadline=None)
@given(parent=walks, name=st.sampled_from(sorted(ALL_MUTATIONS)), seed=st.integers(0, 2**32))
def test_a_walk_of_mutations_stays_inside_the_space(parent: Harness, name: str, seed: int) -> None:
    assert_inside(parent, SPACE)
    child = ALL_MUTATIONS[name](parent, SPACE, np.random.default_rng(seed))
    if child is not None:
        assert_inside(child, SPACE)


@settings(max_examples=50, deadline=None)
@given(parent=walks, name=st.sampled_from(sorted(SERVING_MUTATIONS)), seed=st.integers(0, 2**32))
def test_a_serving_mutation_changes_serving_genes_and_no_others(parent: Harness, name: str, seed: int) -> None:
    child = SERVING_MUTATIONS[name](parent, SPACE, np.random.default_rng(seed))
    assert child is not None
    assert child.id != parent.id
    assert (child.prompt, child.episode) != (parent.prompt, parent.episode)
    assert (child.tasks, child.sampling, child.reward) == (parent.tasks, parent.sampling, parent.reward)


@settings(max_examples=50, deadline=None)
@given(parent=walks, name=st.sampled_from(sorted(TRAINING_MUTATIONS)), seed=st.integers(0, 2**32))
def test_a_training_mutation_leaves_what_is_served_alone(parent: Harness, name: str, seed: int) -> None:
    ruled = replace(parent, reward=replace(parent.reward, rule=RULE))
    child = TRAINING_MUTATIONS[name](ruled, SPACE, np.random.default_rng(seed))
    assert child is not None
    assert (child.prompt, child.episode) == (parent.prompt, parent.episode)
    assert (child.reward != ruled.reward) == (name == "reward")


def test_without_a_reward_rule_its_mutation_draws_nothing() -> None:
    rng = np.random.default_rng(3)
    assert TRAINING_MUTATIONS["reward"](H0, SPACE, rng) is None
    assert rng.bit_generator.state == np.random.default_rng(3).bit_generator.state


@settings(max_examples=50, deadline=None)
@given(parent=walks, name=st.sampled_from(sorted(ALL_MUTATIONS)), seed=st.integers(0, 2**32))
def test_the_same_generator_gives_the_same_child(parent: Harness, name: str, seed: int) -> None:
    first, second = (ALL_MUTATIONS[name](parent, SPACE, np.random.default_rng(seed)) for _ in range(2))
    assert first == second


@settings(max_examples=50, deadline=None)
@given(parent=walks, seed=st.integers(0, 2**32))
def test_mutating_the_format_moves_exactly_one_family(parent: Harness, seed: int) -> None:
    child = mutate_format(parent, SPACE, np.random.default_rng(seed))
    assert child is not None
    moved = [f for f in SPACE.families if child.prompt.formats[f] != parent.prompt.formats[f]]
    assert len(moved) == 1


@pytest.mark.parametrize(
    ("name", "section", "gene"),
    [
        ("shots", "prompt", "num_shots"),
        ("retries", "episode", "retries"),
        ("distractors", "episode", "num_distractors"),
    ],
)
def test_a_counted_gene_moves_by_one_and_reaches_every_value(name: str, section: str, gene: str) -> None:
    rng, harness, seen = np.random.default_rng(0), H0, set()
    for _ in range(60):
        before = getattr(getattr(harness, section), gene)
        child = SERVING_MUTATIONS[name](harness, SPACE, rng)
        assert child is not None
        after = getattr(getattr(child, section), gene)
        assert abs(after - before) == 1
        harness = child
        seen.add(after)
    assert seen == set(range(WIDE[f"max_{name}"] + 1))  # type: ignore[operator]


@pytest.mark.parametrize("name", sorted(SERVING_MUTATIONS))
def test_a_gene_with_one_value_has_nothing_to_change(name: str) -> None:
    space, harness = space_of(formats=("plain",))
    assert SERVING_MUTATIONS[name](harness, space, np.random.default_rng(0)) is None


def test_levels_shift_inside_their_bounds_and_the_lower_one_stays() -> None:
    child = shift_levels(H0, {"count": 5, "sort": -5, "parity": 1}, SPACE)
    assert child is not None
    ranges = {gene.family: (gene.level_low, gene.level_high) for gene in child.tasks}
    assert ranges["count"] == (1, 4)
    assert ranges["sort"] == (1, 1)
    assert ranges["parity"] == (1, 3)
    assert ranges["reverse"] == (1, 2)


def test_a_shift_against_the_bounds_is_nothing() -> None:
    top = replace(H0, tasks=tuple(replace(gene, level_low=4, level_high=4) for gene in H0.tasks))
    assert shift_levels(top, {"count": 1, "sort": -1}, SPACE) is None
    assert shift_levels(H0, {}, SPACE) is None


def genes_of(harness: Harness) -> dict[str, object]:
    """Every gene by its path, as JSON values."""
    data = harness.to_json()
    return {
        **{f"tasks.{gene['family']}": gene for gene in data["tasks"]},
        **{f"formats.{family}": fmt for family, fmt in data["prompt"]["formats"].items()},
        **{f"prompt.{name}": value for name, value in data["prompt"].items() if name != "formats"},
        **{f"episode.{name}": value for name, value in data["episode"].items()},
        "sampling": data["sampling"],
        "reward": data["reward"],
    }


@settings(max_examples=60, deadline=None)
@given(a=walks, b=walks, ancestor=walks, seed=st.integers(0, 2**32))
def test_crossover_takes_the_changed_side_of_every_gene(a: Harness, b: Harness, ancestor: Harness, seed: int) -> None:
    child = genes_of(crossover(a, b, ancestor, np.random.default_rng(seed)))
    mine, theirs, origin = genes_of(a), genes_of(b), genes_of(ancestor)
    assert child.keys() == origin.keys()
    for gene, value in child.items():
        if mine[gene] == origin[gene]:
            assert value == theirs[gene]
        elif theirs[gene] == origin[gene]:
            assert value == mine[gene]
        else:
            assert value in (mine[gene], theirs[gene])


@settings(max_examples=50, deadline=None)
@given(a=walks, ancestor=walks, seed=st.integers(0, 2**32))
def test_crossover_with_an_unchanged_side_is_the_changed_one(a: Harness, ancestor: Harness, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert crossover(a, ancestor, ancestor, rng).id == a.id
    assert crossover(ancestor, a, ancestor, rng).id == a.id
    assert crossover(a, a, ancestor, rng).id == a.id


def test_a_conflict_is_drawn_by_lot() -> None:
    a, b = set_format(H0, "count", "trace"), set_format(H0, "count", "echo")
    drawn = {crossover(a, b, H0, np.random.default_rng(seed)).prompt.formats["count"] for seed in range(20)}
    assert drawn == {"trace", "echo"}


def test_crossover_keeps_a_task_gene_that_the_other_side_does_not_have() -> None:
    extra = TaskGene(family="more", level_low=1, level_high=1, weight=2.0)
    child = crossover(replace(H0, tasks=(*H0.tasks, extra)), H0, H0, np.random.default_rng(0))
    assert child.task_gene("more") == extra
