"""The harness genome: named by its content, whatever order its genes were written in."""

import json
from dataclasses import FrozenInstanceError, replace
from hashlib import sha256
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.records.harness import (
    HARNESS_SCHEMA,
    EpisodeGenes,
    Harness,
    PromptGenes,
    RewardGenes,
    SamplingGenes,
    TaskGene,
    harness_from_json,
)

GENES = tuple(
    TaskGene(family=f, level_low=1, level_high=3, weight=w) for f, w in (("count", 1.0), ("sort", 0.5), ("max", 2.0))
)
HARNESS = Harness(tasks=GENES, prompt=PromptGenes(formats={"count": "trace", "sort": "plain", "max": "echo"}))

shares = st.floats(0, 1)
harnesses = st.builds(
    Harness,
    tasks=st.lists(
        st.builds(
            TaskGene,
            family=st.text(min_size=1, max_size=5),
            level_low=st.integers(1, 4),
            level_high=st.integers(4, 8),
            weight=st.floats(0.1, 10),
        ),
        max_size=4,
        unique_by=lambda gene: gene.family,
    ).map(tuple),
    sampling=st.builds(SamplingGenes, learnability=shares, min_groups=st.integers(0, 99)),
    prompt=st.builds(
        PromptGenes, formats=st.dictionaries(st.text(max_size=4), st.text(max_size=4)), hint=st.text(max_size=4)
    ),
    episode=st.builds(EpisodeGenes, retries=st.integers(0, 3), max_tokens=st.integers(1, 512)),
    reward=st.builds(RewardGenes, exact=shares, length=shares),
)


def test_the_id_does_not_depend_on_the_order_of_genes() -> None:
    ids = {replace(HARNESS, tasks=order).id for order in permutations(GENES)}
    turned = dict(reversed(list(HARNESS.prompt.formats.items())))
    ids.add(replace(HARNESS, prompt=replace(HARNESS.prompt, formats=turned)).id)
    assert ids == {HARNESS.id}


@pytest.mark.parametrize(
    "other",
    [
        replace(HARNESS, tasks=GENES[:2]),
        replace(HARNESS, tasks=(replace(GENES[0], level_high=4), *GENES[1:])),
        replace(HARNESS, sampling=SamplingGenes(learnability=0.7)),
        replace(HARNESS, prompt=replace(HARNESS.prompt, template="twice")),
        replace(HARNESS, prompt=replace(HARNESS.prompt, formats={"count": "trace"})),
        replace(HARNESS, episode=EpisodeGenes(retries=1)),
        replace(HARNESS, reward=RewardGenes(format=0.1)),
    ],
)
def test_every_gene_is_in_the_id(other: Harness) -> None:
    assert other.id != HARNESS.id


def test_the_id_is_the_hash_of_the_canonical_json() -> None:
    text = json.dumps(HARNESS.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert HARNESS.id == "h-" + sha256(text.encode()).hexdigest()[:12]


@settings(deadline=None, max_examples=60)
@given(harnesses)
def test_a_genome_comes_back_from_json(harness: Harness) -> None:
    back = harness_from_json(json.loads(json.dumps(harness.to_json())))
    assert back.id == harness.id
    assert back == replace(harness, tasks=tuple(sorted(harness.tasks, key=lambda gene: gene.family)))


def test_a_newer_schema_is_refused_with_the_fix() -> None:
    data = {**HARNESS.to_json(), "schema": HARNESS_SCHEMA + 1}
    with pytest.raises(
        ValueError, match=f"harness schema {HARNESS_SCHEMA + 1} is newer than {HARNESS_SCHEMA}; read it with"
    ):
        harness_from_json(data)


def test_a_gene_is_found_by_its_family() -> None:
    assert HARNESS.task_gene("sort") == GENES[1]
    assert HARNESS.task_gene("parity") is None


def test_a_genome_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        HARNESS.schema = 2  # type: ignore[misc]
