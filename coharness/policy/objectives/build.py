"""Objectives from the configuration: what a name stands for, what the user wrote over it, and a member's own genes.

The one place where settings and objectives meet. Driven by trainers, once a job: a member's phase and genes may be its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from coharness.config.objectives import TRAITS, SingleObjective
from coharness.config.training import TrainingSection
from coharness.policy.objectives.cispo import Cispo
from coharness.policy.objectives.dpo import Dpo, Link
from coharness.policy.objectives.gradient import GradientTerms
from coharness.policy.objectives.grpo import Grpo
from coharness.policy.objectives.gspo import Gspo
from coharness.policy.objectives.kto import Kto
from coharness.policy.objectives.ppo import Ppo
from coharness.policy.objectives.preference_rows import ContrastRule, PairRule
from coharness.policy.objectives.protocol import Objective, WeightedObjective
from coharness.policy.objectives.sft import Sft
from coharness.policy.objectives.terms import Divergence, Importance, Level, Mean, Rule
from coharness.policy.rows import Advantage

NO_GENES: Final[Mapping[str, float]] = MappingProxyType({})


def objectives_of(
    config: TrainingSection, phase: int | None = None, genes: Mapping[str, float] = NO_GENES
) -> tuple[WeightedObjective, ...]:
    """The objectives of one phase with their weights, the leading one first.

    Args:
        config: Names and settings.
        phase: Place in `training.schedule`; the one after its end where left out.
        genes: Values that a member has of its own, by the names of `training.genes`.
    """
    parts = config.parts(len(config.schedule) if phase is None else phase)
    leading = next(iter(parts))
    return tuple(
        WeightedObjective(
            objective=objective_of(name, config, genes),
            weight=weight if name == leading else weight * genes.get("mix", 1.0),
            constant_length=config.constant_length,
        )
        for name, weight in parts.items()
    )


def objective_of(name: SingleObjective, config: TrainingSection, genes: Mapping[str, float] = NO_GENES) -> Objective:
    """One objective; settings that were left out are those that its name stands for."""
    traits, preference, critic = TRAITS[name], config.preference, config.critic
    low = traits.clip[0] if config.clip_low is None else config.clip_low
    high = traits.clip[1] if config.clip_high is None else config.clip_high
    mean = Mean(traits.mean if config.mean is None else config.mean)
    beta = genes.get("beta", preference.beta)
    terms = _terms(name, config, genes)
    match name:
        case "sft":
            return Sft(keep_solved=config.keep_solved, targets=config.sft_targets)
        case "dpo" | "ipo":
            rule = PairRule(column=preference.pairs_by, failed_groups=preference.failed_groups)
            return Dpo(beta=beta, link=Link.SIGMOID if name == "dpo" else Link.IPO, pairs=rule)
        case "kto":
            return Kto(
                beta=beta,
                desirable_weight=preference.desirable_weight,
                undesirable_weight=preference.undesirable_weight,
                contrast=ContrastRule(per_task=preference.per_task, failed_groups=preference.failed_groups),
            )
        case "grpo" | "dapo":
            return Grpo(terms=terms, clip_low=low, clip_high=high, mean=mean)
        case "dr_grpo":
            return Grpo(terms=terms, clip_low=low, clip_high=high, mean=mean, advantage=Advantage.DR_GRPO)
        case "gspo":
            return Gspo(terms=terms, clip_low=low, clip_high=high, mean=mean)
        case "cispo":
            return Cispo(terms=terms, clip_low=low, clip_high=high, mean=mean)
        case "ppo":
            return Ppo(
                terms=terms,
                clip_low=low,
                clip_high=high,
                mean=mean,
                critic_coefficient=critic.coefficient,
                value_clip=critic.clip,
                discount=critic.discount,
                gae_lambda=critic.gae_lambda,
            )


def _terms(name: SingleObjective, config: TrainingSection, genes: Mapping[str, float]) -> GradientTerms:
    configured = TRAITS[name].kl_coefficient if config.kl_coefficient is None else config.kl_coefficient
    importance = Importance(
        cap=config.tis_cap,
        level=Level(config.importance.level),
        rule=Rule(config.importance.rule),
        low=config.importance.low,
    )
    return GradientTerms(
        importance=importance,
        kl_coefficient=genes.get("kl_coefficient", configured),
        kl_estimator=Divergence(config.kl_estimator),
        entropy_coefficient=genes.get("entropy_coefficient", config.entropy_coefficient),
    )
