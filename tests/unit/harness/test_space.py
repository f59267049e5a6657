"""The gene space: what a config spans, and bad names refused with what is known."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from coharness.config.schema import RunConfig
from coharness.harness.compile import serving_signature
from coharness.harness.space import gene_space, initial_harness, random_serving
from coharness.harness.templates import HINTS, TEMPLATES
from coharness.records.errors import ConfigError
from coharness.records.harness import EpisodeGenes, PromptGenes, SamplingGenes
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.formats import CUED_FORMATS
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(["count", "sort"], max_level=3)])


class Numbered:
    """A family whose levels have the given numbers of tasks."""

    def __init__(self, name: str, sizes: Sequence[int | None]) -> None:
        self.families = (
            FamilySpec(name=name, num_levels=len(sizes), formats=("plain", "trace"), num_tasks=tuple(sizes)),
        )

    def make(self, family: str, level: int, seed: int) -> Task:
        question = f"{family} {level} {seed}"
        return Task(
            id=task_id(family, level, question, str(seed)),
            family=family,
            level=level,
            seed=seed,
            question=question,
            answer=str(seed),
            verifier=VerifierSpec(kind=VerifierKind.EXACT),
            references={"plain": str(seed), "trace": f":{seed}"},
        )


def config(**harness: object) -> RunConfig:
    return RunConfig.model_validate({"run_dir": "unused", "harness": harness, "evaluation": {"tokens_per_task": 40}})


def test_the_mix_holds_only_cells_that_may_be_sealed() -> None:
    sources = TaskSources([Numbered("some", [10, 2_000, None]), Numbered("tiny", [1_999])])
    assert gene_space(config(), sources).mix == (("some", 2), ("some", 3))


def test_a_source_without_a_sealable_cell_is_measured_on_all_of_it() -> None:
    sources = TaskSources([Numbered("tiny", [5, 7])])
    assert gene_space(config(), sources).mix == (("tiny", 1), ("tiny", 2))


def test_formats_are_those_of_the_source_that_the_config_allows_in_the_sources_order() -> None:
    space = gene_space(config(formats=("mirror", "trace", "plain")), SOURCES)
    assert space.formats == {"count": ("plain", "trace", "mirror"), "sort": ("plain", "trace", "mirror")}
    assert gene_space(config(), SOURCES).formats["count"] == CUED_FORMATS


def test_the_number_of_variants_is_that_of_distinct_signatures() -> None:
    section = config(templates=("bare", "twice"), hints=("none", "steps", "fast"), max_shots=1, max_distractors=2)
    space = gene_space(section, SOURCES)
    h0 = initial_harness(section, SOURCES, space)
    signatures = set()
    for fmt, template, hint, shots, distractors in product(
        CUED_FORMATS, space.templates, space.hints, range(2), range(3)
    ):
        prompt = PromptGenes(template=template, hint=hint, num_shots=shots)
        harness = type(h0)(tasks=h0.tasks, prompt=prompt, episode=EpisodeGenes(num_distractors=distractors))
        signatures.add(serving_signature(harness, "count", fmt))
    assert space.num_variants == len(signatures)


def test_the_initial_harness_is_what_the_section_says() -> None:
    section = config(
        level_low=2,
        level_high=9,
        format="trace",
        template="twice",
        hint="check",
        num_shots=1,
        retries=2,
        num_distractors=3,
        sampling={"min_groups": 4.0, "learnability": 0.5},
        reward={"format": 0.25},
    )
    h0 = initial_harness(section, SOURCES, gene_space(section, SOURCES))
    assert [(gene.family, gene.level_low, gene.level_high, gene.weight) for gene in h0.tasks] == [
        ("count", 2, 3, 1.0),
        ("sort", 2, 3, 1.0),
    ]
    assert h0.prompt.formats == {"count": "trace", "sort": "trace"}
    assert (h0.prompt.template, h0.prompt.hint, h0.prompt.num_shots) == ("twice", "check", 1)
    assert (h0.episode.retries, h0.episode.max_tokens, h0.episode.num_distractors) == (2, 40, 3)
    assert (h0.sampling.min_groups, h0.sampling.learnability) == (4, 0.5)
    assert isinstance(h0.sampling.min_groups, int)
    assert (h0.reward.exact, h0.reward.format) == (1.0, 0.25)


@pytest.mark.parametrize(
    ("harness", "named", "known"),
    [
        ({"template": "nope"}, "harness.template names 'nope'", TEMPLATES),
        ({"templates": ("bare", "nope")}, "harness.templates names 'nope'", TEMPLATES),
        ({"hint": "nope"}, "harness.hint names 'nope'", HINTS),
        ({"hints": ("nope",)}, "harness.hints names 'nope'", HINTS),
        ({"formats": ("plain", "nope")}, "harness.formats names 'nope'", CUED_FORMATS),
        ({"formats": ("boxed",)}, "leaves family 'count' without an answer format", CUED_FORMATS),
        ({"format": "boxed"}, "names 'boxed'", CUED_FORMATS),
        ({"format": "trace", "formats": ("plain",)}, "names 'trace'", ("plain",)),
        ({"sampling": {"nope": 1.0}}, "harness.sampling names 'nope'", SamplingGenes.__dataclass_fields__),
        ({"reward": {"nope": 1.0}}, "harness.reward names 'nope'", ("exact", "partial", "format", "length")),
    ],
)
def test_an_unknown_name_is_refused_with_what_is_known(
    harness: dict[str, object], named: str, known: Sequence[str]
) -> None:
    section = config(**harness)
    with pytest.raises(ConfigError) as caught:
        initial_harness(section, SOURCES, gene_space(section, SOURCES))
    assert named in str(caught.value)
    for name in known:
        assert name in str(caught.value)


def test_a_random_serving_reaches_every_value_and_keeps_the_formats() -> None:
    section = config(templates=("bare", "twice"), hints=("none", "fast"), max_shots=2, max_retries=1, max_distractors=1)
    space = gene_space(section, SOURCES)
    h0 = initial_harness(section, SOURCES, space)
    rng = np.random.default_rng(0)
    drawn = [random_serving(h0, space, rng) for _ in range(600)]
    values = {
        (h.prompt.template, h.prompt.hint, h.prompt.num_shots, h.episode.retries, h.episode.num_distractors)
        for h in drawn
    }
    assert values == set(product(space.templates, space.hints, range(3), range(2), range(2)))
    assert all(h.prompt.formats == h0.prompt.formats for h in drawn)
    assert all((g.level_low, g.level_high) == (1, 3) for h in drawn for g in h.tasks)
