"""The shape of a run's configuration; defaults are the vetted setting.

pydantic stands at this edge alone: unknown keys are errors, models are frozen, and what contradicts itself fails here with
both names. `coharness.config.load` reads files and overrides into these models.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from coharness.config.generation import GenerationSection as GenerationSection
from coharness.config.merging import MergeRuleChoice as MergeRuleChoice
from coharness.config.objectives import VETTED_RATES as VETTED_RATES
from coharness.config.reward import RewardSection as RewardSection
from coharness.config.sandbox import CodeTasks as CodeTasks
from coharness.config.section import Section as Section
from coharness.config.training import TrainingSection as TrainingSection


class Schedule(StrEnum):
    """Which levers move, and when."""

    ASYNC = "async"
    "Weights and harnesses evolve together, without a barrier."
    STAGEWISE = "stagewise"
    "The harness on the untouched base for half of the budget, then the weights (or the other way round)."
    HARNESS_ONLY = "harness_only"
    "Every member stays the base; harnesses evolve."
    WEIGHTS_ONLY = "weights_only"
    "The harness stays the initial one; weights, merges and hyperparameters evolve."
    RANDOMIZED = "randomized"
    "Every training group draws its genes uniformly; the harness is chosen at the end. The strongest control."
    FROZEN = "frozen"
    "Nothing moves; measures the base under the initial harness."


# Tasks --------------------------------------------------------------------------------------------------------------


class BuiltinTasks(Section):
    """The built-in string and arithmetic families."""

    type: Literal["builtin"] = "builtin"
    families: tuple[str, ...] | None = None
    "Families to use; all where left out."
    max_level: int = Field(default=8, ge=1, le=8)


class JsonlTasks(Section):
    """Rows of a JSONL file."""

    type: Literal["jsonl"]
    path: str
    family: str
    question: str = "question"
    "Field that holds the question."
    answer: str = "answer"
    "Field that holds the answer."
    answer_pattern: str | None = None
    "Regular expression whose first group is the answer inside the field, e.g. `#### (.+)` for GSM8K."
    verifier: Literal["exact", "numeric", "choice", "math"] = "exact"
    verifier_params: dict[str, Any] = Field(default_factory=dict)
    levels: int = Field(default=1, ge=1)
    "Rows are cut into this many levels by the length of their reference."


class ReasoningGymTasks(Section):
    """Families of the reasoning-gym package."""

    type: Literal["reasoning_gym"]
    families: tuple[str, ...]
    max_level: int = Field(default=3, ge=1)
    params: dict[str, dict[str, Any]] = Field(default_factory=dict)
    "Family -> fixed dataset parameters, over those of the level."
    partial_credit: bool = False
    "Whether the package's own partial credit counts as correct when it is 1.0; exact match is always checked first."


class PythonTasks(Section):
    """A function of yours: `path/to/file.py:function`, returning a TaskSource."""

    type: Literal["python"]
    path: str


TaskSection = Annotated[
    BuiltinTasks | JsonlTasks | ReasoningGymTasks | PythonTasks | CodeTasks, Field(discriminator="type")
]


# Sections -----------------------------------------------------------------------------------------------------------


class Budget(Section):
    """What a run may spend."""

    rollouts: int = Field(default=51_200, ge=1)
    "Episodes of all members and purposes, except those for curves and the sealed report."
    minutes: float = Field(default=60.0, gt=0)
    "Cap on running time; the rollouts are the budget."


class Population(Section):
    """How many of each."""

    num_policies: int = Field(default=3, ge=1, le=256)
    num_harnesses: int = Field(default=3, ge=1, le=256)


class FleetSection(Section):
    """What carries the work out; `fleet: local` names it alone."""

    one_word: ClassVar[str] = "type"

    type: Literal["ray", "local"] = "ray"
    rollout_workers: int = Field(default=2, ge=1)
    trainers: int = Field(default=1, ge=1)
    threads_per_worker: int = Field(default=1, ge=1)
    batch_items: int = Field(default=64, ge=1, le=256)
    lease_s: float = Field(default=120.0, gt=0)
    "A batch or job that takes longer is taken from its worker, which is replaced."
    max_attempts: int = Field(default=3, ge=1)
    "How often an item is leased before it ends as failed."


class LoraSection(Section):
    """Shape of the members' adapters."""

    rank: int = Field(default=8, ge=1)
    alpha: float = Field(default=16.0, gt=0)
    use_rslora: bool = False
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


class PolicySection(Section):
    """The base and what a member adds to it."""

    base: str = "tiny"
    "`tiny` (beside the quickstart), `smollm2` (see `coharness base fetch`), or a folder in transformers' format."
    weights: Literal["full", "lora"] = "full"
    lora: LoraSection = LoraSection()
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_context: int = Field(default=256, ge=16)
    "Tokens of prompt and answer together."


class EvaluationSection(Section):
    """How success is measured."""

    tokens_per_task: int = Field(default=64, ge=1)
    "Tokens an episode may write over all turns when it is evaluated."
    track_every: int = Field(default=6_400, ge=1)
    "Charged episodes between two readings of the TRACK pool."
    track_tasks: int = Field(default=96, ge=0)
    "Tasks of one reading."
    sealed_per_cell: int = Field(default=25, ge=1)
    "Sealed tasks for each (family, level) in the final report."
    probe_tasks: int = Field(default=0, ge=0)
    "Tasks of each family that the base must solve at least one of before the run starts; 0 asks nothing."
    best_of_k: int = Field(default=64, ge=0)
    "Cap on k of the majority-vote control; 0 leaves it out."


class GateSection(Section):
    """The promotion test."""

    fdr_alpha: float = Field(default=0.1, gt=0, lt=1)
    look_every: int = Field(default=32, ge=1)
    max_pairs: int = Field(default=1_000, ge=32)
    min_effect: float = Field(default=0.03, gt=0)
    futility: float = Field(default=10.0, gt=1)
    harm_delta: float = Field(default=0.05, gt=0)
    veto: float = Field(default=10.0, gt=1)
    max_share: float = Field(default=0.25, gt=0, lt=1)
    "Largest share of the charged episodes that tests may take."
    concurrent: int = Field(default=2, ge=1)
    "Tests open at once."
    null_tests: int = Field(default=2, ge=0)
    "A/A tests a run makes."
    null_pairs: int = Field(default=128, ge=32)
    rollback_pairs: int = Field(default=512, ge=32)


class EvolutionSection(Section):
    """Selection, merging and proposals."""

    evidence_half_life: float = Field(default=24.0, gt=0)
    "Policy versions after which an observation counts half."
    exploit: Literal["posterior", "truncation", "tournament", "lexicase", "none"] = "posterior"
    "Who gives way: to one that is surely better, by another rule of `evolution.selection`, or nobody. Merges race either way."
    exploit_probability: float = Field(default=0.9, gt=0.5, lt=1)
    "Of `posterior`: least posterior probability that the one is better."
    newborn_updates: int = Field(default=6, ge=0)
    "Updates a clone or merge is safe from being replaced."
    hyperparameters: Literal["explore", "inherit", "fixed"] = "explore"
    "Members start apart and clones move what they inherit; or clones inherit it as it is; or all keep the config's own values."
    clone_cap: float = Field(default=0.67, gt=0, le=1)
    "Largest share of the population that may descend from one member by clones still young."
    merge_every: int = Field(default=60, ge=0)
    "Updates of the population between two merge proposals; 0 never merges."
    merge_rule: MergeRuleChoice = "task_arithmetic"
    "One rule; or a list, or `auto` for one of each kind, of which the run chooses by the races that each has won."
    race_pairs: int = Field(default=192, ge=32)
    race_evalue: float = Field(default=3.0, gt=1)
    "A merge wins its race at this e-value."
    propose_every: int = Field(default=10, ge=1)
    "Updates of the population between two harness proposals (in a schedule without updates: as many groups)."
    assess_every: int = Field(default=40, ge=1)
    "Updates of the population between two assessments: all members on shared tasks, greedy. Exploits and challenges follow."
    spawn_every: int = Field(default=40, ge=0)
    "Updates of the population between two turnovers of the weakest harness; 0 never."
    uniform_pairing: float = Field(default=0.2, ge=0, le=1)
    "Share of assignments drawn uniformly over harnesses; the rest goes where evidence is thinnest."


class StagewiseSection(Section):
    """Order of the stages of `schedule: stagewise`."""

    order: Literal["harness_first", "weights_first"] = "harness_first"


class HarnessSection(Section):
    """The initial harness and the space it may move in."""

    level_low: int = Field(default=1, ge=1)
    level_high: int = Field(default=2, ge=1)
    "Levels the initial harness trains on; evolution may widen the range."
    format: str | None = None
    "Serving format of all families; the source's plain one where left out."
    formats: tuple[str, ...] | None = None
    "Answer formats evolution may choose from; all that the sources offer where left out."
    templates: tuple[str, ...] = ("bare",)
    hints: tuple[str, ...] = ("none",)
    max_shots: int = Field(default=0, ge=0)
    max_retries: int = Field(default=0, ge=0)
    max_distractors: int = Field(default=0, ge=0)
    template: str = "bare"
    hint: str = "none"
    num_shots: int = Field(default=0, ge=0)
    num_distractors: int = Field(default=0, ge=0)
    retries: int = Field(default=0, ge=0)
    sampling: dict[str, float] = Field(default_factory=dict)
    "Overrides of the sampling genes, by name."
    reward: dict[str, float] = Field(default_factory=dict)
    "Weights of the score's parts, by name."
    reward_rule: dict[str, Any] = Field(default_factory=dict)
    "A rule of the reward algebra in place of the weights; see `coharness.reward.algebra.rule`."


class RunConfig(Section):
    """A run."""

    run_dir: str
    "Folder of the run; must not exist yet."
    seed: int = Field(default=0, ge=0)
    schedule: Schedule = Schedule.ASYNC
    stagewise: StagewiseSection = StagewiseSection()
    budget: Budget = Budget()
    population: Population = Population()
    fleet: FleetSection = FleetSection()
    tasks: tuple[TaskSection, ...] = (BuiltinTasks(),)
    policy: PolicySection = PolicySection()
    generation: GenerationSection = GenerationSection()
    training: TrainingSection = TrainingSection()
    harness: HarnessSection = HarnessSection()
    reward: RewardSection = RewardSection()
    evaluation: EvaluationSection = EvaluationSection()
    gate: GateSection = GateSection()
    evolution: EvolutionSection = EvolutionSection()

    @model_validator(mode="after")
    def _refuse_repeated_rules(self) -> "RunConfig":
        rule = self.evolution.merge_rule
        if isinstance(rule, tuple) and (not rule or len(set(rule)) < len(rule)):
            raise ValueError(f"evolution.merge_rule is {list(rule)}; name at least one rule and none twice, or `auto`")
        return self

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "RunConfig":
        training = self.training
        if self.schedule is Schedule.ASYNC and training.max_staleness == 0:
            raise ValueError(
                "training.max_staleness=0 forbids any overlap, which contradicts schedule=async; "
                "set training.max_staleness=1 or more"
            )
        if self.harness.level_low > self.harness.level_high:
            raise ValueError(
                f"harness.level_low={self.harness.level_low} is above harness.level_high={self.harness.level_high}"
            )
        low, high = training.learning_rate
        if not 0 < low <= high:
            raise ValueError(f"training.learning_rate is a range low..high with 0 < low <= high, got {low}..{high}")
        if not low <= training.initial_learning_rate <= high:
            raise ValueError(
                f"training.initial_learning_rate={training.initial_learning_rate} lies outside "
                f"training.learning_rate={low}..{high}"
            )
        is_deepspeed = training.backend == "deepspeed"
        if is_deepspeed and training.deepspeed.stage == 0 and self.policy.dtype == "bfloat16":
            raise ValueError(
                "training.deepspeed.stage=0 keeps no float32 masters that can be restored, which policy.dtype=bfloat16 needs; "
                "set training.deepspeed.stage=1 or more"
            )
        if self.population.num_policies > self.generation.max_adapters:
            raise ValueError(
                f"population.num_policies={self.population.num_policies} is more than the "
                f"generation.max_adapters={self.generation.max_adapters} that an engine holds; raise the latter"
            )
        if not self.tasks:
            raise ValueError("tasks is empty; name at least one source, e.g. [{type: builtin}]")
        return self
