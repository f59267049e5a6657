"""What stays the same during a run: config, task sources, gene space, the initial harness. Read by the whole core."""

from dataclasses import dataclass

import numpy as np

from coharness.config.schema import RunConfig, Schedule
from coharness.evolution.evidence import Cell
from coharness.harness.compile import serving_format, serving_signature
from coharness.harness.space import GeneSpace, gene_space, initial_harness
from coharness.records.harness import Harness
from coharness.records.ids import derive_seed
from coharness.reward.monitors.divergence import DivergenceDetector, RunShape, calibrated_divergence
from coharness.reward.monitors.response import AUDIT_FACTOR
from coharness.spaces.space import Float
from coharness.spaces.training_space import training_space
from coharness.tasks.sources import TaskSources


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A run's constants."""

    config: RunConfig
    sources: TaskSources
    space: GeneSpace
    h0: Harness
    hyperparameters: dict[str, Float]
    divergence: DivergenceDetector | None = None
    "Of a run whose judge is watched, where there are readings enough to hold it against a benchmark."

    @property
    def num_policies(self) -> int:
        """Members of the population; where no schedule ever trains, all would be the same base, so there is one."""
        untrained = (Schedule.HARNESS_ONLY, Schedule.FROZEN)
        return 1 if self.config.schedule in untrained else self.config.population.num_policies

    @property
    def tests_reserve(self) -> int:
        """Episodes kept back for the last assessment and the last challenge of the champion."""
        closing = 2 * self.config.gate.max_pairs + self.num_fill * self.num_policies
        if self.config.schedule is Schedule.RANDOMIZED:
            closing += self.choose_per_cell * self.num_format_options + self.choose_global * (
                self.num_global_options + 1
            )
        return min(closing, self.config.budget.rollouts // 8)

    @property
    def num_format_options(self) -> int:
        """(family, format) pairs."""
        return sum(len(f) for f in self.space.formats.values())

    @property
    def choose_per_cell(self) -> int:
        """Tasks on which the randomized control tries each (family, format); fewer where the budget is small."""
        return max(min(CHOOSE_PER_CELL, self.config.budget.rollouts // 32 // self.num_format_options), 1)

    @property
    def choose_global(self) -> int:
        """Tasks on which it tries each value of the other serving genes."""
        return max(min(CHOOSE_GLOBAL, self.config.budget.rollouts // 32 // (self.num_global_options + 1)), 1)

    @property
    def scout_per_cell(self) -> int:
        """Tasks of each (family, format, level) in the first assessment; fewer where the budget is small."""
        cells = sum(len(self.space.formats[family]) for family, _ in self.space.mix)
        return max(min(SCOUT_PER_CELL, self.config.budget.rollouts // 16 // cells), 1)

    @property
    def num_fill(self) -> int:
        """Episodes of one assessment of one member in one harness."""
        return FILL_PER_CELL * len(self.space.mix)

    @property
    def num_global_options(self) -> int:
        """Values of the genes that act on all families, beyond the initial ones."""
        s = self.space
        return len(s.templates) + len(s.hints) + s.max_shots + s.max_retries + s.max_distractors

    def cells(self, harness: Harness) -> tuple[Cell, ...]:
        """The evaluation mix compiled with a harness: what its fitness is read over."""
        signatures: dict[str, str] = {}
        for family in self.space.formats:
            signatures[family] = self.signature(harness, family)
        return tuple((signatures[family], level) for family, level in self.space.mix)

    def signature(self, harness: Harness, family: str, answer_format: str | None = None) -> str:
        """The serving signature of a family in a harness, in its serving format where none is given."""
        fmt = answer_format or serving_format(harness, self.sources, family)
        return serving_signature(harness, family, fmt)


FILL_PER_CELL = 2
"""Tasks of each cell of the mix in one assessment."""
SCOUT_PER_CELL = 8
"""Most tasks of each cell in the first one, which looks at every answer format on the base."""
CHOOSE_PER_CELL = 24
"""Most tasks on which the randomized control tries each (family, format)."""
DIVERGENCE_WARMUP = 8
"""Assessments that say where judge and benchmark stand in health; a run of fewer than twice as many is not held against it."""
CHOOSE_GLOBAL = 96
"""Most tasks on which it tries each value of the other serving genes."""


def build_context(config: RunConfig, sources: TaskSources) -> Context:
    """The constants of a run.

    Raises:
        ConfigError: the config and the sources do not fit.
    """
    space = gene_space(config, sources)
    return Context(
        config=config,
        sources=sources,
        space=space,
        h0=initial_harness(config, sources, space),
        hyperparameters=training_space(config.training),
        divergence=_divergence(config, len(space.mix)),
    )


def monitor_horizon(config: RunConfig) -> int:
    """Steps of the judge's monitors that a run can have: all of its episodes audited at the largest share."""
    monitor = config.reward.monitor
    share = min(1.0, AUDIT_FACTOR * monitor.audit_share)
    return max(1, round(share * config.budget.rollouts / monitor.step_audits))


def _divergence(config: RunConfig, num_cells: int) -> DivergenceDetector | None:
    """A detector whose threshold is simulated for runs of this shape; the benchmark is the members' assessments."""
    if config.reward.judge is None:
        return None
    updates = config.budget.rollouts / (config.training.group_size * config.training.groups_per_update)
    readings = int(updates / config.evolution.assess_every)
    if readings < 2 * DIVERGENCE_WARMUP:
        return None
    steps = monitor_horizon(config)
    shape = RunShape(
        steps=steps,
        rollouts=config.reward.monitor.step_audits,
        benchmark_items=FILL_PER_CELL * num_cells * config.population.num_policies,
        benchmark_every=max(1, steps // readings),
        warmup=DIVERGENCE_WARMUP,
    )
    rng = np.random.default_rng(derive_seed("divergence", config.seed))
    return calibrated_divergence(shape, rng, alpha=config.reward.monitor.alpha)
