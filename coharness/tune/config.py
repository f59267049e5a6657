"""The shape of a search's configuration; defaults are the vetted setting."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from coharness.config.schema import Section
from coharness.config.sections import overridden, read_file, validated
from coharness.config.yaml_text import write_mapping
from coharness.spaces.domain import Move, Noise
from coharness.spaces.foreign import from_any
from coharness.spaces.spelling import SpaceSection, build_tree, spell_tree
from coharness.spaces.tree import Tree
from coharness.tune.rules import (
    LexicaseRule,
    MapElitesRule,
    NichesRule,
    Nsga2Rule,
    RuleSection,
    TruncationRule,
    build_rule,
)
from coharness.tune.trainable import resolve


class SearchBudget(Section):
    """What a search may spend."""

    steps: int = Field(ge=1)
    "Steps of each member, its ancestors' not counted twice: a member's place in the population gets this many."
    minutes: float = Field(default=24 * 60.0, gt=0)
    "Cap on running time; the steps are the budget."


class Objective(Section):
    """One of several objectives."""

    metric: str
    mode: Literal["max", "min"] = "max"


class ScoreSection(Section):
    """What is read of a step's numbers."""

    metric: str = "score"
    mode: Literal["max", "min"] = "max"
    target: float | None = None
    "The search ends when a member reaches it."
    cases: tuple[str, ...] = ()
    "Metrics that are scores on single cases, higher is better."
    objectives: tuple[Objective, ...] = ()
    descriptor: tuple[str, ...] = ()
    "Metrics that say what kind of behaviour a member shows."


class FitnessSection(Section):
    """How reports become evidence."""

    half_life: float = Field(default=0.0, ge=0)
    "Reports after which one counts half; 0 reads the last report alone."
    noise: float = Field(default=0.0, ge=0)
    "Standard deviation of a report around the member's true score; 0 trusts reports as they are."
    clone_share: float = Field(default=0.3, ge=0, le=1)
    "Share of a parent's evidence that a clone starts with."
    merge_share: float = Field(default=0.1, ge=0, le=1)
    "Share of the parents' evidence that a merge starts with."


class GuardSection(Section):
    """What is true of every selection rule."""

    newborn_intervals: int = Field(default=1, ge=0)
    "Reports that a clone, merge or newcomer makes before it may be replaced."
    clone_cap: float = Field(default=1.0, gt=0, le=1)
    "Largest share of the members that may be of one clan; two may always be. A cap costs steps where a single path is best."
    founder_intervals: int = Field(default=4, ge=1)
    "Intervals that clans and the effective size look back."
    immigrants_below: float = Field(default=0.0, ge=0, le=1)
    "Effective population size, as a share of the members, below which immigrants come; 0 for never."
    immigrant_rate: float = Field(default=0.25, ge=0, le=1)
    equal_turns: bool = False
    "Give quick and slow members turns at the same rate. Decisions then read the measured seconds, which two runs never share."


class ExploreSection(Section):
    """How settings move."""

    type: Literal["typed", "ray"] = "typed"
    "`ray` is Ray Tune's own explore, its faults included, for side-by-side runs."
    step: float = Field(default=0.22314355131420976, gt=0)
    "In units: natural logarithms, log-odds, or the range; log 1.25 if left out."
    noise: Literal["sign", "normal"] = "sign"
    switch: float = Field(default=0.25, ge=0, le=1)
    "Probability that an unordered choice becomes another one."
    resample: float = Field(default=0.25, ge=0, le=1)
    "Probability that a field is drawn from its prior instead."
    adapt: bool = False
    "Whether every member passes on a step of its own, slightly changed."

    @property
    def move(self) -> Move:
        """The move of the typed spaces."""
        return Move(step=self.step, noise=Noise(self.noise), switch=self.switch, resample=self.resample)


class PoolSection(Section):
    """What carries intervals out."""

    type: Literal["process", "inline", "ray"] = "process"
    "Worker processes, this process in virtual time, or Ray actors."
    workers: int = Field(default=2, ge=1, le=4096)
    threads_per_worker: int = Field(default=1, ge=1)
    deadline_s: float = Field(default=3600.0, gt=0)
    "An interval that takes longer is taken from its worker, which is replaced."
    max_attempts: int = Field(default=3, ge=1)
    "How often an interval is tried before its member counts as failed."
    max_resident: int = Field(default=8, ge=1)
    "Members that a worker keeps in memory."
    order: Literal["arrival", "rounds"] = "arrival"
    "Decide on each report as it comes, or on all of a round together: slower, and the same whatever the timing."


class TuneConfig(Section):
    """A search."""

    run_dir: str
    "Folder of the search; must not exist yet."
    seed: int = Field(default=0, ge=0)
    trainable: str
    "`path/to/file.py:Class` or `package.module:Class`."
    space: dict[str, SpaceSection]
    constants: dict[str, Any] = Field(default_factory=dict)
    "Hyperparameters that are the same for all members and never move."
    initial: tuple[dict[str, Any], ...] = ()
    "Settings that the first members start with; the others draw theirs."
    members: int = Field(default=8, ge=1, le=4096)
    interval: int = Field(default=10, ge=1)
    "Steps between two reports of a member."
    budget: SearchBudget
    score: ScoreSection = ScoreSection()
    fitness: FitnessSection = FitnessSection()
    selection: RuleSection = TruncationRule()
    genes: Literal["move", "keep", "own"] = "move"
    "Controls for `selection alone`: `keep` passes the donor's setting on unchanged, `own` takes over weights alone."
    guard: GuardSection = GuardSection()
    explore: ExploreSection = ExploreSection()
    pool: PoolSection = PoolSection()
    keep_checkpoints: bool = False
    "Keep the checkpoints of all intervals instead of those that may still be needed."

    @property
    def tree(self) -> Tree:
        """The space as domains."""
        return build_tree(self.space)

    @property
    def sign(self) -> float:
        """1 where the score is to be high, -1 where it is to be low."""
        return 1.0 if self.score.mode == "max" else -1.0

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "TuneConfig":
        tree = self.tree
        build_rule(self.selection, tree, self.interval, self.genes)
        for place, setting in enumerate(self.initial):
            try:
                tree.check(setting)
            except ValueError as error:
                raise ValueError(f"initial.{place}: {error}") from error
        if len(self.initial) > self.members:
            raise ValueError(f"initial holds {len(self.initial)} settings for members={self.members}; raise members")
        both = sorted(set(self.constants) & set(self.space))
        if both:
            raise ValueError(
                f"{', '.join(both)} stands in both space and constants; a constant does not move, so leave one out"
            )
        needs = {Nsga2Rule: "objectives", LexicaseRule: "cases", NichesRule: "cases", MapElitesRule: "descriptor"}
        need = needs.get(type(self.selection))
        if need and not getattr(self.score, need):
            raise ValueError(f"selection.type={self.selection.type} reads score.{need}, which names no metric")
        if isinstance(self.selection, MapElitesRule) and len(self.score.descriptor) != len(self.selection.bins):
            raise ValueError(
                f"selection.bins has {len(self.selection.bins)} dimensions, score.descriptor names {len(self.score.descriptor)}"
            )
        return self


def load_tune_config(path: Path | str, overrides: Sequence[str] = ()) -> TuneConfig:
    """The config of a YAML file with overrides laid over it.

    `space` may be a reference `path/to/file.py:NAME` to a space in Python: ours, Ray Tune's or Optuna's. Relative paths
    start from the file's folder, or, where nothing is there, from the working directory.

    Raises:
        ConfigError: the file cannot be read, or holds mistakes; the message has one line for each.
    """
    path = Path(path)
    return tune_config_from(read_file(path), overrides, source=str(path), folder=path.resolve().parent)


def tune_config_from(
    data: Mapping[str, Any], overrides: Sequence[str] = (), *, source: str = "the config", folder: Path | None = None
) -> TuneConfig:
    """The config of plain values, as `load_tune_config` makes it of a file's.

    Raises:
        ConfigError: there are mistakes; the message has one line for each.
    """
    folder = folder or Path.cwd()
    changed = overridden(data, overrides, TuneConfig)
    if isinstance(changed.get("trainable"), str):
        changed["trainable"] = _absolute(changed["trainable"], folder)
    if isinstance(changed.get("space"), str):
        changed["space"] = spell_tree(from_any(resolve(_absolute(changed["space"], folder))))
    if isinstance(changed.get("run_dir"), str):
        changed["run_dir"] = str(Path(changed["run_dir"]).expanduser().absolute())
    return validated(changed, TuneConfig, source, overrides)


def dump_tune_config(config: TuneConfig) -> str:
    """The resolved config as YAML, every default written out."""
    return write_mapping(config.model_dump(mode="json"))


def _absolute(reference: str, folder: Path) -> str:
    place, colon, name = reference.rpartition(":")
    if not (colon and place.endswith(".py")):
        return reference
    here = Path(place).expanduser()
    beside = folder / here
    return f"{(here if not beside.exists() and here.exists() else beside).absolute()}:{name}"
