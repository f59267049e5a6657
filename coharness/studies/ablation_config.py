"""The YAML of an ablation: a run's config, the factors that are varied in it, and how sure one wants to be.

    base: config.yaml
    seeds: 5
    design: one_off
    factors:
      merging: {without: [evolution.merge_every=0]}
      learning rate: {levels: {vetted: [], low: [training.initial_learning_rate=0.0005]}}

Factors are overrides of the base, spelled as on the command line. Relative paths start from the file's folder; `out_dir` from the
working directory.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from coharness.config.load import load_config
from coharness.config.schema import RunConfig
from coharness.config.section import Section
from coharness.config.sections import overridden, read_file, validated
from coharness.studies.ablation_plan import CONTROLS, WITH, WITHOUT, Arm, Design, Factor, Plan, make_plan

Name = Annotated[str, StringConstraints(pattern=r"^[\w][\w .+-]*$", max_length=60)]
Overrides = tuple[str, ...]
ONE_CELL: Overrides = ("fleet.type=local", "fleet.threads_per_worker=1", "evaluation.best_of_k=0")
"""What every cell lays over the base: one process of one thread, and no vote of the base, which no contrast reads."""
QUICK_ROLLOUTS = 600


class FactorSection(Section):
    """A switch (`without`), or several settings (`levels`, the first is the reference)."""

    without: Overrides | None = None
    "What takes the thing out."
    with_: Overrides = Field(default=(), alias="with")
    "What puts it in, where the base does not have it."
    levels: dict[Name, Overrides] | None = None

    @model_validator(mode="after")
    def _refuse_both(self) -> "FactorSection":
        if (self.without is None) == (self.levels is None):
            raise ValueError("a factor is a switch or has levels; name exactly one of without and levels")
        if self.levels is not None and self.with_:
            raise ValueError("with belongs to without; a factor with levels has its reference as the first level")
        return self

    def factor(self, name: str) -> Factor:
        """The factor of this name."""
        levels = self.levels if self.levels is not None else {WITH: self.with_, WITHOUT: self.without or ()}
        return Factor(name=name, levels=levels)


class AblationConfig(Section):
    """An ablation study."""

    base: str
    "The run's YAML file."
    question: str = "Which parts does the run need?"
    factors: dict[Name, FactorSection]
    design: Design = Design.ONE_OFF
    resolution: int = Field(default=4, ge=3, le=9)
    "Least resolution of `design: fraction`: 3, 4 (main effects clear of two-factor interactions) or 5 (those clear as well)."
    overrides: Overrides = ()
    "What all arms lay over the base, e.g. [budget.rollouts=25600]."
    blocks: dict[Name, Overrides] = Field(default={"all": ()})
    "Problems that every arm runs under; contrasts are averaged over them and seeds are drawn inside them."
    seeds: int = Field(default=5, ge=1)
    controls: tuple[str, ...] = tuple(CONTROLS)
    "Control arms: frozen, randomized, single."
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    "Chance of any false verdict, over all contrasts."
    power: float = Field(default=0.8, gt=0.5, lt=1)
    expected_sd: float | None = Field(default=None, gt=0)
    "Expected spread between seeds of the difference of two arms, for what can be detected; finished cells replace it."
    quick: Overrides = (f"budget.rollouts={QUICK_ROLLOUTS}",)
    "What --quick lays over all arms."
    cell_minutes: float = Field(default=24 * 60.0, gt=0)
    "Minutes after which a cell counts as hung and is ended."
    out_dir: str | None = None
    "Folder of the results; runs/ablations/NAME where left out, after the file's name."

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "AblationConfig":
        if not self.blocks:
            raise ValueError("blocks is empty; leave it out for one problem")
        self.plan()
        return self

    def plan(self) -> Plan:
        """Arms and contrasts."""
        factors = [section.factor(name) for name, section in self.factors.items()]
        return make_plan(factors, self.design, resolution=self.resolution, controls=self.controls)


def load_ablation(path: Path | str, overrides: Sequence[str] = ()) -> AblationConfig:
    """The config of a YAML file with overrides laid over it; its paths are absolute afterwards.

    Raises:
        ConfigError: the file cannot be read, or holds mistakes; the message has one line for each.
    """
    path = Path(path)
    config = validated(overridden(read_file(path), overrides, AblationConfig), AblationConfig, str(path), overrides)
    base = Path(config.base).expanduser()
    beside = path.resolve().parent / base
    out = config.out_dir or str(Path("runs") / "ablations" / path.stem)
    return config.model_copy(
        update={
            "base": str(beside if beside.exists() or not base.exists() else base.absolute()),
            "out_dir": str(Path(out).expanduser().absolute()),
        }
    )


def run_values(
    config: AblationConfig, arm: Arm, block: str, seed: int, *, quick: bool, rollouts: int | None
) -> Mapping[str, Any]:
    """The resolved config of one cell's run as JSON values, but for the run's folder, which is the cell's.

    Raises:
        ConfigError: the base or the overrides of the arm hold mistakes; the message names the overrides.
    """
    words = [*config.overrides, *config.blocks[block], *arm.overrides, *ONE_CELL, *(config.quick if quick else ())]
    words += [f"seed={seed}"] + ([f"budget.rollouts={rollouts}"] if rollouts is not None else [])
    values = run_config(config, words).model_dump(mode="json")
    del values["run_dir"]
    return values


def run_config(config: AblationConfig, words: Sequence[str]) -> RunConfig:
    """The base config with overrides.

    Raises:
        ConfigError: they hold mistakes.
    """
    return load_config(config.base, words)
