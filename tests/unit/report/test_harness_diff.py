from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.records.harness import (
    EpisodeGenes,
    Harness,
    PromptGenes,
    RewardGenes,
    SamplingGenes,
    TaskGene,
)
from coharness.records.harness_diff import harness_diff

shares = st.sampled_from([0.0, 0.25, 0.5, 1.0])
genes = st.builds(
    TaskGene,
    family=st.sampled_from(["count", "parity", "sort"]),
    level_low=st.integers(1, 2),
    level_high=st.integers(2, 4),
    weight=st.sampled_from([0.5, 1.0]),
)
harnesses = st.builds(
    Harness,
    tasks=st.lists(genes, max_size=3, unique_by=lambda gene: gene.family).map(tuple),
    sampling=st.builds(SamplingGenes, learnability=shares, level_up=shares, min_groups=st.integers(1, 3)),
    prompt=st.builds(
        PromptGenes,
        template=st.sampled_from(["bare", "chat"]),
        formats=st.dictionaries(st.sampled_from(["count", "parity"]), st.sampled_from(["plain", "trace"])),
        num_shots=st.integers(0, 2),
    ),
    episode=st.builds(EpisodeGenes, retries=st.integers(0, 1), max_tokens=st.sampled_from([16, 64])),
    reward=st.builds(RewardGenes, partial=shares, length=shares),
)


@settings(max_examples=50, deadline=None)
@given(harnesses, harnesses)
def test_the_diff_is_empty_exactly_when_the_genomes_are_the_same(a: Harness, b: Harness) -> None:
    assert (harness_diff(a, b) == []) == (a.id == b.id)


@settings(max_examples=50, deadline=None)
@given(harnesses, harnesses)
def test_both_directions_name_the_same_number_of_genes(a: Harness, b: Harness) -> None:
    assert len(harness_diff(a, b)) == len(harness_diff(b, a))


def test_phrases_name_gene_and_both_values_serving_genes_first() -> None:
    before = Harness(tasks=(TaskGene(family="sort", level_low=1, level_high=2, weight=1.0),))
    after = Harness(
        tasks=(
            TaskGene(family="count", level_low=1, level_high=1, weight=0.5),
            TaskGene(family="sort", level_low=1, level_high=4, weight=2.0),
        ),
        prompt=PromptGenes(formats={"count": "trace", "parity": "echo", "sort": "trace"}, num_shots=2),
        episode=EpisodeGenes(max_tokens=32),
        sampling=SamplingGenes(level_up=0.9),
        reward=RewardGenes(partial=0.25),
    )
    assert harness_diff(before, after) == [
        "format of count, sort: default → trace",
        "format of parity: default → echo",
        "worked examples: 0 → 2",
        "token budget: 64 → 32",
        "trains on count too, levels 1, weight 0.5",
        "training levels of sort: 1–2 → 1–4",
        "training weight of sort: 1 → 2",
        "success that moves a level up: 0.6 → 0.9",
        "reward for partial credit: 0 → 0.25",
    ]
    assert harness_diff(after, before)[4] == "no longer trains on count"


def test_the_order_of_task_genes_is_no_difference() -> None:
    one, two = (TaskGene(family=f, level_low=1, level_high=2, weight=1.0) for f in ("count", "sort"))
    assert harness_diff(Harness(tasks=(one, two)), Harness(tasks=(two, one))) == []


def test_a_gene_without_words_of_its_own_is_named_by_its_field() -> None:
    before = Harness(tasks=())
    assert harness_diff(before, replace(before, episode=EpisodeGenes(retries=1))) == ["retries: 0 → 1"]
