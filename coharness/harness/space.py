"""The space that harness genomes live in: what each gene may be in one run, and the fixed mix that success is measured on."""

import fnmatch
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from coharness.config.schema import CodeTasks, RunConfig
from coharness.harness.templates import HINTS, TEMPLATES
from coharness.records.errors import ConfigError
from coharness.records.harness import EpisodeGenes, Harness, PromptGenes, RewardGenes, SamplingGenes, TaskGene
from coharness.reward.algebra import rule_from_json
from coharness.reward.algebra.part import Part
from coharness.reward.algebra.rule import Rule
from coharness.reward.score import CODE_PARTS, JUDGE_PREFIX, OWN_PARTS
from coharness.tasks.formats import FORMATS
from coharness.tasks.sources import TaskSources


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneSpace:
    """Bounds of every gene."""

    formats: dict[str, tuple[str, ...]]
    "Family -> answer formats, the plain one first."
    num_levels: dict[str, int]
    templates: tuple[str, ...]
    hints: tuple[str, ...]
    max_shots: int
    max_retries: int
    max_distractors: int
    mix: tuple[tuple[str, int], ...]
    "The (family, level) cells of the fixed evaluation mix, all of equal weight; only cells that may be sealed."

    @property
    def families(self) -> tuple[str, ...]:
        """Families in name order."""
        return tuple(sorted(self.formats))

    @property
    def num_variants(self) -> int:
        """Distinct evaluations one family can be given (serving genes alone)."""
        return max(len(f) for f in self.formats.values()) * self.num_global_variants

    @property
    def num_global_variants(self) -> int:
        """Settings of the serving genes that act on all families."""
        counts = (self.max_shots + 1, self.max_retries + 1, self.max_distractors + 1)
        return len(self.templates) * len(self.hints) * prod(counts)


def gene_space(config: RunConfig, sources: TaskSources) -> GeneSpace:
    """The space that a config spans over its task sources.

    Raises:
        ConfigError: a format, template or hint that does not exist, or no cell large enough to be sealed.
    """
    section = config.harness
    _known("harness.templates", section.templates, TEMPLATES)
    _known("harness.hints", section.hints, HINTS)
    _known("harness.template", (section.template,), TEMPLATES)
    _known("harness.hint", (section.hint,), HINTS)
    formats = {}
    for name, spec in sources.families.items():
        chosen = tuple(f for f in spec.formats if section.formats is None or f in section.formats)
        if not chosen:
            raise ConfigError(
                f"harness.formats={list(section.formats or ())} leaves family {name!r} without an answer format; "
                f"its source offers {', '.join(spec.formats)}"
            )
        formats[name] = chosen
    if section.formats is not None:
        _known("harness.formats", section.formats, FORMATS)
    return GeneSpace(
        formats=formats,
        num_levels={name: spec.num_levels for name, spec in sources.families.items()},
        templates=section.templates,
        hints=section.hints,
        max_shots=section.max_shots,
        max_retries=section.max_retries,
        max_distractors=section.max_distractors,
        mix=evaluation_mix(sources),
    )


def evaluation_mix(sources: TaskSources) -> tuple[tuple[str, int], ...]:
    """The cells of family and level that success is read over: those with enough distinct tasks for pools of their own."""
    families = sorted(sources.families.items())
    cells = tuple((name, level) for name, spec in families for level in range(1, spec.num_levels + 1))
    large = tuple((name, level) for name, level in cells if sources.families[name].may_seal(level))
    # A finite file is smaller than any cell that could be sealed safely; measuring on all of it is better than on none.
    return large or cells


def initial_harness(config: RunConfig, sources: TaskSources, space: GeneSpace) -> Harness:
    """The harness that every run of a config starts from, h₀.

    Raises:
        ConfigError: a sampling or reward gene that does not exist.
    """
    section = config.harness
    genes = []
    for family in space.families:
        top = space.num_levels[family]
        genes.append(
            TaskGene(
                family=family,
                level_low=min(section.level_low, top),
                level_high=min(section.level_high, top),
                weight=1.0,
            )
        )
    if section.format is not None:
        for family in space.families:
            _known(f"harness.format (family {family!r})", (section.format,), space.formats[family])
    formats = {f: section.format or space.formats[f][0] for f in space.families}
    _known("harness.sampling", tuple(section.sampling), SamplingGenes.__dataclass_fields__)
    _known(
        "harness.reward", tuple(section.reward), [name for name in RewardGenes.__dataclass_fields__ if name != "rule"]
    )
    # References teach at any level, so under supervision a level rises early and failing at it is no reason to come down.
    supervised = {"level_up": 0.4, "level_down": 0.0} if config.training.is_supervised() else {}
    sampling = {**supervised, **section.sampling}
    if "min_groups" in sampling:
        sampling["min_groups"] = int(sampling["min_groups"])
    return Harness(
        tasks=tuple(genes),
        sampling=replace(SamplingGenes(), **sampling),  # type: ignore[arg-type]
        prompt=PromptGenes(template=section.template, formats=formats, num_shots=section.num_shots, hint=section.hint),
        episode=EpisodeGenes(
            retries=section.retries,
            max_tokens=config.evaluation.tokens_per_task,
            num_distractors=section.num_distractors,
        ),
        reward=RewardGenes(**section.reward, rule=_reward_rule(config)),
    )


def _reward_rule(config: RunConfig) -> dict[str, Any]:
    """The rule of the config in its normal form, so that two spellings of one rule are one genome; empty where there is none."""
    if not config.harness.reward_rule:
        return {}
    rule = rule_from_json(config.harness.reward_rule, "harness.reward_rule")
    for name in sorted(rule.names):
        if name.startswith(JUDGE_PREFIX):
            if config.reward.judge is None:
                raise ConfigError(
                    f"harness.reward_rule reads {name!r} and no judge is configured; set reward.judge, or leave the part out"
                )
        elif fnmatch.filter(CODE_PARTS, name):
            others = not all(isinstance(section, CodeTasks) for section in config.tasks)
            if others and rule.evaluate(Part.ok(own, 1.0) for own in _given_parts(rule)).value is None:
                raise ConfigError(
                    f"harness.reward_rule reads {name!r}, which only attempts at code tasks have, and there are other tasks, "
                    "whose attempts it leaves without a reward; put it into a mean with `quorum: 0` beside parts that all "
                    "attempts have, or leave out the part or the tasks"
                )
        elif not fnmatch.filter(OWN_PARTS, name):
            known = ", ".join((*OWN_PARTS, *CODE_PARTS))
            raise ConfigError(
                f"harness.reward_rule reads {name!r}, which no attempt has; known are {known}, {JUDGE_PREFIX}..."
            )
    return rule.to_json()


def _given_parts(rule: Rule) -> list[str]:
    """Parts of an attempt at a task that asks for no code, the judge's among them."""
    return [*OWN_PARTS, *(name for name in rule.names if name.startswith(JUDGE_PREFIX))]


def full_range(harness: Harness, space: GeneSpace) -> Harness:
    """The harness with every family trained on over all of its levels."""
    return replace(
        harness, tasks=tuple(replace(g, level_low=1, level_high=space.num_levels[g.family]) for g in harness.tasks)
    )


def nth_serving(harness: Harness, space: GeneSpace, index: int) -> Harness:
    """The harness with the `index`-th setting of the serving genes that act on all families, 0 <= index < their number."""
    index, template = divmod(index, len(space.templates))
    index, hint = divmod(index, len(space.hints))
    index, shots = divmod(index, space.max_shots + 1)
    distractors, retries = divmod(index, space.max_retries + 1)
    return replace(
        harness,
        prompt=PromptGenes(
            template=space.templates[template],
            formats=dict(harness.prompt.formats),
            num_shots=shots,
            hint=space.hints[hint],
        ),
        episode=replace(harness.episode, retries=retries, num_distractors=distractors),
    )


def random_serving(harness: Harness, space: GeneSpace, rng: np.random.Generator) -> Harness:
    """A harness whose serving genes are drawn uniformly from the space and whose level ranges are the whole."""
    return replace(
        full_range(harness, space),
        prompt=PromptGenes(
            template=str(rng.choice(space.templates)),
            formats=dict(harness.prompt.formats),
            num_shots=int(rng.integers(space.max_shots + 1)),
            hint=str(rng.choice(space.hints)),
        ),
        episode=replace(
            harness.episode,
            retries=int(rng.integers(space.max_retries + 1)),
            num_distractors=int(rng.integers(space.max_distractors + 1)),
        ),
    )


def _known(what: str, names: tuple[str, ...], known: object) -> None:
    options = list(known)  # type: ignore[call-overload]
    for name in names:
        if name not in options:
            raise ConfigError(f"{what} names {name!r}, which does not exist; known are {', '.join(map(str, options))}")
