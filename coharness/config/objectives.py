"""What the configuration and the loop must know of an objective without loading torch; defaults that its name stands for.

`coharness.policy.objectives` holds the objectives themselves. A name means a published setting (the variants of GRPO differ in
little else), so what the user leaves out is read here, and what the user writes wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

MeanName = Literal["token", "sequence", "constant"]
SingleObjective = Literal["sft", "dpo", "ipo", "kto", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "ppo"]
ObjectiveName = Literal[
    "sft", "grpo", "sft+grpo", "dpo", "ipo", "kto", "dr_grpo", "dapo", "gspo", "cispo", "ppo"
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One objective, seen from outside."""

    rates: tuple[float, float, float]
    "Learning rates low, high and initial, measured on the tiny base."
    min_group: int = 1
    "Least episodes a task: 2 where the episodes of a task are compared."
    borrows: bool = False
    "Whether groups of other members may be learned from."
    is_gradient: bool = False
    "Whether it is a policy gradient: clipped, corrected for staleness, held to the base by a KL term."
    clip: tuple[float, float] = (0.2, 0.2)
    "How far below and above 1 a ratio may go before its gradient stops."
    mean: MeanName = "token"
    kl_coefficient: float = 0.0


TRAITS: Final[Mapping[SingleObjective, Traits]] = {
    "sft": Traits(rates=(4e-4, 2e-3, 1e-3), borrows=True),
    "dpo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, borrows=True),
    "ipo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, borrows=True),
    "kto": Traits(rates=(1e-5, 1e-4, 3e-5), borrows=True),
    "grpo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, is_gradient=True, kl_coefficient=0.02),
    "dr_grpo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, is_gradient=True, mean="constant"),
    "dapo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, is_gradient=True, clip=(0.2, 0.28)),
    "gspo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, is_gradient=True, clip=(3e-4, 4e-4), mean="sequence"),
    "cispo": Traits(rates=(1e-5, 1e-4, 3e-5), min_group=2, is_gradient=True, clip=(1.0, 4.0)),
    "ppo": Traits(rates=(1e-5, 1e-4, 3e-5), is_gradient=True, kl_coefficient=0.02),
}
"""Objective -> what its name stands for."""

VETTED_RATES: Final[dict[str, tuple[float, float, float]]] = {
    **{name: traits.rates for name, traits in TRAITS.items()},
    "sft+grpo": (2e-5, 2e-4, 5e-5),
}
"""Objective -> learning rates low, high and initial, measured on the tiny base."""

assert set(TRAITS) == set(get_args(SingleObjective)), "an objective without traits"
assert set(VETTED_RATES) == set(get_args(ObjectiveName)), "an objective without rates"
