"""Drawing groups: in range, mostly at open levels, other formats only among those allowed, worth by objective."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.harness.sampling import Draw, GroupSampler, Read, Worth
from coharness.harness.space import GeneSpace
from coharness.records.harness import Harness, PromptGenes, SamplingGenes, TaskGene
from coharness.stats.beta import BetaEvidence

NOTHING = BetaEvidence()
SOLVED = BetaEvidence(successes=40.0, failures=2.0)
FAILED = BetaEvidence(successes=0.0, failures=40.0)
HALF = BetaEvidence(successes=20.0, failures=20.0)
SFT = Worth(is_supervised=True, group_size=1)
GRPO = Worth(is_supervised=False, group_size=4)


def space_of(*families: str, formats: tuple[str, ...] = ("plain", "trace", "echo"), num_levels: int = 4) -> GeneSpace:
    return GeneSpace(
        formats=dict.fromkeys(families, formats),
        num_levels=dict.fromkeys(families, num_levels),
        templates=("bare",),
        hints=("none",),
        max_shots=0,
        max_retries=0,
        max_distractors=0,
        mix=tuple((family, level) for family in families for level in range(1, num_levels + 1)),
    )


def harness_of(*families: str, low: int = 1, high: int = 4, **sampling: float) -> Harness:
    return Harness(
        tasks=tuple(TaskGene(family=f, level_low=low, level_high=high, weight=1.0) for f in families),
        sampling=SamplingGenes(**{"uniform_floor": 0.0, "explore_formats": 0.0, **sampling}),  # type: ignore[arg-type]
        prompt=PromptGenes(formats=dict.fromkeys(families, "plain")),
    )


def known(evidence: Mapping[tuple[str, str, int], BetaEvidence]) -> Read:
    return lambda family, fmt, level: evidence.get((family, fmt, level), NOTHING)


def draws(sampler: GroupSampler, count: int = 2_000, seed: int = 0) -> list[Draw]:
    rng = np.random.default_rng(seed)
    return [sampler.draw(rng) for _ in range(count)]


evidence_tables = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["plain", "trace", "echo"]), st.integers(1, 4)),
    st.builds(BetaEvidence, successes=st.floats(0, 50), failures=st.floats(0, 50)),
)


@settings(max_examples=60, deadline=None)
@given(
    table=evidence_tables,
    low=st.integers(1, 4),
    width=st.integers(0, 3),
    learnability=st.floats(0, 1),
    floor=st.floats(0, 0.5),
    explore=st.floats(0, 0.6),
    worth=st.sampled_from([SFT, GRPO]),
    seed=st.integers(0, 2**32),
)
def test_every_draw_is_in_range(
    table: dict[tuple[str, str, int], BetaEvidence],
    low: int,
    width: int,
    learnability: float,
    floor: float,
    explore: float,
    worth: Worth,
    seed: int,
) -> None:
    high = min(low + width, 4)
    harness = harness_of(
        "a", "b", low=low, high=high, learnability=learnability, uniform_floor=floor, explore_formats=explore
    )
    space = space_of("a", "b", "c")
    for draw in draws(GroupSampler(harness, space, known(table), worth, explores=True), 20, seed):
        assert draw.family in ("a", "b")
        assert low <= draw.level <= high
        assert draw.format in space.formats[draw.family]


def test_a_level_stays_closed_until_half_of_the_one_below_is_solved() -> None:
    table = {("a", "plain", 1): HALF, ("a", "plain", 2): BetaEvidence(successes=18.0, failures=22.0)}
    opened = {("a", "plain", 1): BetaEvidence(successes=22.0, failures=18.0), **dict([*table.items()][1:])}
    sampler, other = (GroupSampler(harness_of("a"), space_of("a"), known(t), GRPO, False) for t in (table, opened))
    # A closed level keeps a small weight, so that a bad start rules nothing out.
    assert 0 < sum(d.level > 1 for d in draws(sampler)) < 0.05 * 2_000
    levels = Counter(d.level for d in draws(other))
    assert levels[2] > 0.4 * 2_000
    assert 0 < levels[3] + levels[4] < 0.05 * 2_000


def test_supervision_practises_a_closed_level_less_than_an_open_one_that_can_teach() -> None:
    assert SFT.of_closed < SFT.of(BetaEvidence())
    levels = Counter(d.level for d in draws(GroupSampler(harness_of("a"), space_of("a"), known({}), SFT, False)))
    assert levels[1] > 2 * max(levels[2], levels[3], levels[4])
    assert min(levels[2], levels[3], levels[4]) > 0


def test_an_open_level_is_drawn_by_what_it_can_teach() -> None:
    table = {("a", "plain", 1): SOLVED, ("a", "plain", 2): BetaEvidence(successes=30.0, failures=20.0)}
    levels = Counter(d.level for d in draws(GroupSampler(harness_of("a"), space_of("a"), known(table), GRPO, False)))
    # Level 2 (solved by half) and 3 (open and never met) can teach most; 4 is closed.
    assert min(levels[2], levels[3]) > 2 * levels[1]
    assert levels[4] < levels[1]


def test_what_was_never_met_opens_nothing() -> None:
    table = {("a", "plain", 1): BetaEvidence(successes=0.9)}
    for evidence in ({}, table):
        sampler = GroupSampler(harness_of("a"), space_of("a"), known(evidence), GRPO, False)
        assert sum(d.level == 1 for d in draws(sampler)) > 0.9 * 2_000


def test_without_exploration_only_the_serving_format_is_practised() -> None:
    harness = harness_of("a", explore_formats=0.6)
    formats = {d.format for d in draws(GroupSampler(harness, space_of("a"), known({}), SFT, explores=False))}
    assert formats == {"plain"}


def test_the_share_of_other_formats_is_the_gene_and_never_leaves_the_space() -> None:
    harness = harness_of("a", explore_formats=0.3)
    formats = Counter(d.format for d in draws(GroupSampler(harness, space_of("a"), known({}), SFT, explores=True)))
    assert formats.keys() == {"plain", "trace", "echo"}
    others = formats["trace"] + formats["echo"]
    assert abs(others / 2_000 - 0.3) < 4 * (0.3 * 0.7 / 2_000) ** 0.5


def test_a_single_format_leaves_nothing_to_explore() -> None:
    harness = harness_of("a", explore_formats=0.6)
    space = space_of("a", formats=("plain",))
    assert {d.format for d in draws(GroupSampler(harness, space, known({}), SFT, explores=True), 200)} == {"plain"}


def test_exploration_goes_to_the_format_that_has_shown_more() -> None:
    table = {("a", "trace", level): SOLVED for level in (1, 2, 3, 4)}
    table |= {("a", "echo", level): FAILED for level in (1, 2, 3, 4)}
    harness = harness_of("a", explore_formats=0.6)
    formats = Counter(d.format for d in draws(GroupSampler(harness, space_of("a"), known(table), SFT, explores=True)))
    assert formats["trace"] > 20 * formats["echo"]


def test_the_uniform_floor_ignores_all_evidence() -> None:
    harness = harness_of("a", "b", high=3, uniform_floor=1.0, explore_formats=0.6)
    table = {("a", "plain", level): FAILED for level in (1, 2, 3)}
    seen = Counter(
        (d.family, d.level, d.format)
        for d in draws(GroupSampler(harness, space_of("a", "b"), known(table), SFT, explores=True), 3_000)
    )
    assert seen.keys() == {(family, level, "plain") for family in "ab" for level in (1, 2, 3)}
    assert all(abs(n / 3_000 - 1 / 6) < 4 * (5 / 36 / 3_000) ** 0.5 for n in seen.values())


def test_families_stay_near_their_share_whatever_they_can_teach() -> None:
    table = {("a", "plain", level): FAILED for level in (1, 2, 3, 4)}
    table |= {("b", "plain", level): BetaEvidence(successes=1_000.0) for level in (1, 2, 3, 4)}
    harness = harness_of("a", "b", "c", learnability=1.0)
    seen = Counter(d.family for d in draws(GroupSampler(harness, space_of(*"abc"), known(table), SFT, False)))
    assert min(seen.values()) > 0.15 * 2_000
    assert seen["c"] == max(seen.values())


def test_task_weights_alone_decide_where_learnability_is_off() -> None:
    harness = harness_of("a", "b", learnability=0.0)
    harness = replace(harness, tasks=(replace(harness.tasks[0], weight=3.0), harness.tasks[1]))
    table = {("a", "plain", 1): BetaEvidence(successes=1_000.0)}
    seen = Counter(d.family for d in draws(GroupSampler(harness, space_of("a", "b"), known(table), SFT, False)))
    assert abs(seen["a"] / 2_000 - 0.75) < 4 * (0.75 * 0.25 / 2_000) ** 0.5


def test_the_order_of_task_genes_does_not_matter() -> None:
    harness = harness_of("a", "b", "c")
    turned = replace(harness, tasks=harness.tasks[::-1])
    space = space_of(*"abc")
    first, second = (draws(GroupSampler(h, space, known({}), SFT, True), 100) for h in (harness, turned))
    assert first == second


def test_a_policy_gradient_learns_only_from_groups_that_differ() -> None:
    assert GRPO.of(HALF) > 0.8
    assert GRPO.of(BetaEvidence(failures=1_000.0)) < 0.01
    assert GRPO.of(BetaEvidence(successes=1_000.0)) < 0.01
    # A single episode can never differ from itself.
    assert Worth(is_supervised=False, group_size=1).of(HALF) == pytest.approx(0.0, abs=1e-12)


def test_supervision_also_learns_from_what_always_fails_but_less() -> None:
    always_failed, always_solved = BetaEvidence(failures=1_000.0), BetaEvidence(successes=1_000.0)
    assert SFT.of(HALF) > SFT.of(always_failed) > 10 * SFT.of(always_solved)


@settings(max_examples=50, deadline=None)
@given(
    st.builds(BetaEvidence, successes=st.floats(0, 1e6), failures=st.floats(0, 1e6)), st.booleans(), st.integers(2, 16)
)
def test_worth_is_a_share(evidence: BetaEvidence, is_supervised: bool, group_size: int) -> None:
    worth = Worth(is_supervised=is_supervised, group_size=group_size)
    assert 0 <= worth.of(evidence) <= 1
    assert 0 < worth.of_closed < 0.1
