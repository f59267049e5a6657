"""Level moves as a function: bounded, dwelling, monotone in the evidence, never both ways at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.harness.curriculum import level_step
from coharness.records.harness import SamplingGenes, TaskGene
from coharness.stats.beta import BetaEvidence

evidence = st.builds(BetaEvidence, successes=st.floats(0, 60), failures=st.floats(0, 60))
bands = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


@st.composite
def settings_of_a_family(draw: st.DrawFn) -> tuple[TaskGene, SamplingGenes, int]:
    low, high, top = sorted(draw(st.lists(st.integers(1, 8), min_size=3, max_size=3)))
    down, up = draw(bands)
    genes = SamplingGenes(level_up=up, level_down=down, min_groups=draw(st.integers(0, 30)))
    return TaskGene(family="count", level_low=low, level_high=high, weight=1.0), genes, top


@settings(deadline=None, max_examples=200)
@given(family=settings_of_a_family(), at_top=st.lists(evidence, max_size=4), num_groups=st.integers(0, 60))
def test_a_move_stays_in_bounds_and_keeps_the_dwell(
    family: tuple[TaskGene, SamplingGenes, int], at_top: list[BetaEvidence], num_groups: int
) -> None:
    gene, genes, top = family
    step = level_step(gene, at_top, genes, num_groups, top)
    assert step in (-1, 0, 1)
    assert gene.level_low <= gene.level_high + step <= top
    if num_groups < genes.min_groups or not at_top:
        assert step == 0


@settings(deadline=None, max_examples=200)
@given(family=settings_of_a_family(), seen=evidence, better=st.floats(0, 30))
def test_one_cell_with_more_success_never_moves_lower(
    family: tuple[TaskGene, SamplingGenes, int], seen: BetaEvidence, better: float
) -> None:
    gene, genes, top = family
    # With at least four observations on both sides, so that knowing more alone decides nothing.
    seen = seen.observed(2.0, 2.0)
    shifted = min(better, seen.failures)
    improved = BetaEvidence(successes=seen.successes + shifted, failures=seen.failures - shifted)
    before, after = (level_step(gene, [e], genes, 100, top) for e in (seen, improved))
    assert after >= before


@settings(deadline=None, max_examples=200)
@given(family=settings_of_a_family(), at_top=st.lists(evidence, min_size=1, max_size=4), data=st.data())
def test_the_order_of_formats_does_not_matter(
    family: tuple[TaskGene, SamplingGenes, int], at_top: list[BetaEvidence], data: st.DataObject
) -> None:
    gene, genes, top = family
    # Equal means with unequal counts would be a tie that the order decides.
    distinct = list({round(e.mean, 9): e for e in at_top}.values())
    shuffled = data.draw(st.permutations(distinct))
    assert level_step(gene, distinct, genes, 100, top) == level_step(gene, shuffled, genes, 100, top)
