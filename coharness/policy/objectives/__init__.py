"""Objectives: what a member's update minimises, one a file; each picks its rows and turns log-probabilities into a loss.

An objective is a frozen record of its settings. The trainer does all forward passes, so that an objective is arithmetic on
[B, T] tensors and can be tested against an oracle without a model. A new one is a new file, a new line in `build.objective_of`
and its traits in `coharness.config.objectives`. Those that train a judge (`bradley_terry`, `score_regression`, `critique`) are no
setting of a run: who trains a judge hands them to the trainer.
"""

from coharness.policy.objectives.bradley_terry import BradleyTerry
from coharness.policy.objectives.build import objective_of, objectives_of
from coharness.policy.objectives.cispo import Cispo
from coharness.policy.objectives.critique import Critique
from coharness.policy.objectives.dpo import Dpo
from coharness.policy.objectives.grpo import Grpo
from coharness.policy.objectives.gspo import Gspo
from coharness.policy.objectives.kto import Kto
from coharness.policy.objectives.ppo import Ppo
from coharness.policy.objectives.protocol import Objective, WeightedObjective
from coharness.policy.objectives.score_regression import ScoreRegression
from coharness.policy.objectives.sft import Sft
from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch

__all__ = [
    "BradleyTerry",
    "Cispo",
    "Critique",
    "Dpo",
    "Grpo",
    "Gspo",
    "Kto",
    "LossParts",
    "Mean",
    "Needs",
    "Objective",
    "Ppo",
    "Prepared",
    "ScoreRegression",
    "Sft",
    "Snapshot",
    "TokenBatch",
    "WeightedObjective",
    "objective_of",
    "objectives_of",
]
