"""How members learn: the objective and its settings, what follows what, and which settings are genes.

Read by the loop (group sizes, what may be borrowed), by the training space and by the objectives. Conflicts that lie inside this
section fail here; `schema.RunConfig` checks it against the others.
"""

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coharness.config.deepspeed import DeepSpeedSection
from coharness.config.objectives import TRAITS, VETTED_RATES, MeanName, ObjectiveName, SingleObjective
from coharness.config.section import Section

GeneName = Literal["kl_coefficient", "entropy_coefficient", "beta", "mix"]


class Phase(Section):
    """A stretch of a member's life with an objective of its own."""

    objective: ObjectiveName
    updates: int = Field(ge=1)
    "How many updates it takes, counted along the line of clones."
    mix: dict[SingleObjective, float] = Field(default_factory=dict)
    "Objectives added to its loss, by weight."
    rate_scale: float | None = Field(default=None, gt=0)
    "Factor on a member's learning rate, which is that of `training.objective`; the ratio of the vetted rates where left out."


class ImportanceSection(Section):
    """Correction for policies that drew the tokens some updates ago, or in another engine."""

    level: Literal["token", "sequence", "geometric"] = "token"
    "What a ratio is of: a token, a whole answer, or an answer's tokens in geometric mean."
    rule: Literal["truncate", "mask", "none"] = "truncate"
    "Ratios above `training.tis_cap` are cut down to it, or what they belong to is left out (below `low` as well)."
    low: float = Field(default=0.0, ge=0)
    "Least ratio that `rule: mask` keeps."


class PreferenceSection(Section):
    """What `dpo`, `ipo` and `kto` learn from, and how hard."""

    beta: float = Field(default=0.1, gt=0)
    "How dear a step away from the base is."
    pairs_by: Literal["score", "exact", "partial", "format_ok", "length_left"] = "score"
    "Part of the score that makes one episode of a task better than another."
    failed_groups: Literal["skip", "reference"] = "skip"
    "What becomes of a task that no episode solved: nothing, or its reference answer stands against the most confident wrong one."
    per_task: int = Field(default=2, ge=1)
    "Right and wrong episodes of a task that `kto` learns from at most: the least confident right, the most confident wrong ones."
    desirable_weight: float = Field(default=1.0, ge=0)
    "Weight of right answers in `kto`."
    undesirable_weight: float = Field(default=1.0, ge=0)
    "Weight of wrong ones."


class CriticSection(Section):
    """The critic of `ppo`: a linear head on the policy's own trunk, kept with the optimizer's state and never served."""

    coefficient: float = Field(default=0.1, ge=0)
    "Weight of its loss."
    clip: float = Field(default=0.2, gt=0)
    "How far a value may move in one update before its gradient stops."
    rate_scale: float = Field(default=30.0, gt=0)
    "Factor on the member's learning rate for the head, which starts at 0 and has to keep up with the policy."
    discount: float = Field(default=1.0, gt=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)


class TrainingSection(Section):
    """How members learn; `training: deepspeed` names the backend alone."""

    one_word: ClassVar[str] = "backend"

    backend: Literal["torch", "deepspeed"] = "torch"
    "What computes updates: the trainer's own process, or processes that it starts and that share one ZeRO engine."
    deepspeed: DeepSpeedSection = DeepSpeedSection()
    objective: ObjectiveName = "sft"
    mix: dict[SingleObjective, float] = Field(default_factory=dict)
    "Objectives added to the objective's loss in the same update, by weight; `sft+grpo` is `grpo` with `mix: {sft: sft_mix}`."
    schedule: tuple[Phase, ...] = ()
    "Phases that every member goes through before `objective`, e.g. [{objective: sft, updates: 40}]."
    group_size: int = Field(default=1, ge=1)
    "Episodes a task."
    groups_per_update: int = Field(default=64, ge=1)
    max_staleness: int = Field(default=2, ge=0)
    "Updates that a group may be behind when it is trained on; bounded by admission, before work starts."
    borrow: float = Field(default=2.0, ge=0)
    "Groups of other members that an update adds, as a share of its own; no policy gradient looks at them."
    sft_targets: Literal["references", "successes"] = "references"
    "What supervision imitates: references, or the member's own verified successes and references of what it failed."
    keep_solved: float = Field(default=0.3, ge=0, le=1)
    "Share of solved tasks whose reference supervision keeps; failed ones are always kept."
    row_tokens: int = Field(default=4096, ge=64)
    "Token budget of one micro-batch."
    packing: Literal["never", "auto", "always"] = "never"
    "Whether rows are laid end to end in one sequence, each seeing itself alone; `auto` where padding would cost more."
    max_grad_norm: float = Field(default=1.0, gt=0)
    clip_low: float | None = Field(default=None, gt=0)
    clip_high: float | None = Field(default=None, gt=0)
    "How far below and above 1 a ratio may go; the objective's own where left out (.2 and .2 in GRPO)."
    mean: MeanName | None = None
    "What a loss is averaged over: tokens, rows, or rows of `constant_length` tokens; the objective's own where left out."
    constant_length: int = Field(default=64, ge=1)
    "Tokens that an answer counts as under `mean: constant`."
    kl_coefficient: float | None = Field(default=None, ge=0)
    "KL to the base in policy gradients; the objective's own where left out (.02 in GRPO and PPO, 0 in the others)."
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coefficient: float = Field(default=0.0, ge=0)
    "Weight of the entropy, in nats a token, that policy gradients are paid for."
    sft_mix: float = Field(default=0.1, ge=0)
    "Weight of the supervised loss in `sft+grpo`."
    tis_cap: float = Field(default=2.0, gt=0)
    "Cap on the importance weight; see `importance`."
    importance: ImportanceSection = ImportanceSection()
    preference: PreferenceSection = PreferenceSection()
    critic: CriticSection = CriticSection()
    learning_rate: tuple[float, float] = (4e-4, 2e-3)
    "Range the members' learning rates start in and move within (log scale)."
    initial_learning_rate: float = Field(default=1e-3, gt=0)
    "The rate of the first member; the others draw theirs from the range."
    temperature: tuple[float, float] = (0.3, 1.0)
    "Range of the decoding temperature in training."
    weight_decay: float = Field(default=0.0, ge=0)
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    "A member publishes a running mean of its weights that keeps this share a step; 0 publishes the weights. `sft` alone: .98."
    genes: dict[GeneName, tuple[float, float]] = Field(default_factory=dict)
    "Setting -> range in which each member has its own value (log scale); `mix` is a factor on all weights of the mix."

    @model_validator(mode="before")
    @classmethod
    def _vetted_average(cls, data: Any) -> Any:
        """A mean is published under supervision alone: a policy gradient is taken at the weights that acted."""
        if not isinstance(data, dict) or "ema_decay" in data:
            return data
        only_sft = data.get("objective", "sft") == "sft" and not data.get("mix") and not data.get("schedule")
        return {**data, "ema_decay": 0.98 if only_sft and data.get("backend", "torch") == "torch" else 0.0}

    @model_validator(mode="before")
    @classmethod
    def _vetted_rates(cls, data: Any) -> Any:
        """Learning rates that were left out follow the objective: what supervision needs makes a policy gradient collapse."""
        if not isinstance(data, dict) or "learning_rate" in data or "initial_learning_rate" in data:
            return data
        rates = VETTED_RATES.get(str(data.get("objective", "sft")))
        return data if rates is None else {**data, "learning_rate": rates[:2], "initial_learning_rate": rates[2]}

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "TrainingSection":
        for index in range(len(self.schedule) + 1):
            where = "training" if index == len(self.schedule) else f"training.schedule.{index}"
            for name in self.parts(index):
                least = TRAITS[name].min_group
                if self.group_size < least:
                    raise ValueError(
                        f"{where}.objective={self.name_at(index)} needs training.group_size >= {least} to compare episodes of "
                        f"one task, got {self.group_size}; set training.group_size=4 or training.objective=sft"
                    )
        if self.backend != "torch" and self.ema_decay:
            raise ValueError(
                f"training.backend={self.backend} publishes the weights themselves, got training.ema_decay={self.ema_decay}; "
                "set training.ema_decay=0 or training.backend=torch"
            )
        if self.importance.rule == "mask" and self.importance.low >= self.tis_cap:
            raise ValueError(
                f"training.importance.low={self.importance.low} leaves no ratio below training.tis_cap={self.tis_cap}; "
                "lower the first"
            )
        for gene, (low, high) in self.genes.items():
            value = self.configured_gene(gene)
            if not 0 < low <= high:
                raise ValueError(f"training.genes.{gene} is a range low..high with 0 < low <= high, got {low}..{high}")
            if not low <= value <= high:
                raise ValueError(
                    f"training.genes.{gene}={low}..{high} does not hold {value}, where training.objective={self.objective} "
                    "starts (0 where it has no such term); widen the range, set the value, or leave the gene out"
                )
        used = {name for phase in range(len(self.schedule) + 1) for name in self.parts(phase)}
        if not any(TRAITS[name].is_gradient for name in used):
            for setting in ("clip_low", "clip_high", "mean", "kl_coefficient", "entropy_coefficient"):
                if getattr(self, setting):
                    raise ValueError(
                        f"training.{setting}={getattr(self, setting)} is of policy gradients, and training.objective="
                        f"{self.objective} is none; leave it out"
                    )
        for index, parts in enumerate(map(self.parts, range(len(self.schedule) + 1))):
            where = "training.mix" if index == len(self.schedule) else f"training.schedule.{index}.mix"
            twice = set(self._leading(index)) & set(self._mix(index))
            if twice:
                raise ValueError(
                    f"{where}.{min(twice)} is in training.objective={self.name_at(index)} already; leave it out"
                )
            for name, weight in parts.items():
                if not (math.isfinite(weight) and weight >= 0):
                    raise ValueError(f"{where}.{name} is a weight, 0 or more, got {weight}")
        return self

    def name_at(self, phase: int) -> ObjectiveName:
        """The objective of phase `phase`; that of the end from len(schedule) on."""
        return self.schedule[phase].objective if phase < len(self.schedule) else self.objective

    def parts(self, phase: int) -> dict[SingleObjective, float]:
        """Objective -> weight in the loss of phase `phase`, the leading one first."""
        return {**self._leading(phase), **self._mix(phase)}

    def _leading(self, phase: int) -> dict[SingleObjective, float]:
        name = self.name_at(phase)
        return {"grpo": 1.0, "sft": self.sft_mix} if name == "sft+grpo" else {name: 1.0}

    def _mix(self, phase: int) -> dict[SingleObjective, float]:
        return self.schedule[phase].mix if phase < len(self.schedule) else self.mix

    def phase_of(self, updates: int) -> int:
        """The phase of a member's next update, after so many along its line."""
        for index, phase in enumerate(self.schedule):
            updates -= phase.updates
            if updates < 0:
                return index
        return len(self.schedule)

    def rate_scale(self, phase: int) -> float:
        """What a member's learning rate is multiplied by in phase `phase`."""
        if phase >= len(self.schedule):
            return 1.0
        given = self.schedule[phase].rate_scale
        if given is not None:
            return given
        return VETTED_RATES[self.schedule[phase].objective][2] / VETTED_RATES[self.objective][2]

    def borrows(self, phase: int) -> bool:
        """Whether an objective of phase `phase` may learn from other members' groups."""
        return any(TRAITS[name].borrows for name in self.parts(phase))

    @property
    def has_critic(self) -> bool:
        """Whether members have a critic in any phase."""
        return any("ppo" in self.parts(phase) for phase in range(len(self.schedule) + 1))

    def is_supervised(self, phase: int | None = None) -> bool:
        """Whether phase `phase`, the last where left out, learns from tasks that no episode solved."""
        names = self.parts(len(self.schedule) if phase is None else phase).keys()
        return "sft" in names or (self.preference.failed_groups == "reference" and bool(names & {"dpo", "ipo", "kto"}))

    def configured_gene(self, gene: GeneName) -> float:
        """The value of a gene that the config itself sets, where the first member starts; 0 where no objective uses it."""
        names = {name: weight for phase in range(len(self.schedule) + 1) for name, weight in self.parts(phase).items()}
        leading = next((name for name in names if TRAITS[name].is_gradient), None)
        match gene:
            case "kl_coefficient" if leading is not None:
                own = TRAITS[leading].kl_coefficient
                return own if self.kl_coefficient is None else self.kl_coefficient
            case "entropy_coefficient" if leading is not None:
                return self.entropy_coefficient
            case "beta" if names.keys() & {"dpo", "ipo", "kto"}:
                return self.preference.beta
            case "mix" if any(len(self.parts(phase)) > 1 for phase in range(len(self.schedule) + 1)):
                return 1.0
            case _:
                return 0.0
