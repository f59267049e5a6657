"""The torch trainer keeps the contract of training backends, with full weights and with adapters, for each objective."""

from pathlib import Path

import pytest

from coharness.config.schema import LoraSection, PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase, base_weights_ref
from coharness.policy.training.torch_trainer import TorchTrainer
from coharness.policy.weights import DiskWeightStore
from coharness.testing.toy_training import random_base
from coharness.testing.trainers import TRAINER_CHECKS, TrainerCase

COMBINATIONS = [("full", "sft"), ("full", "sft+grpo"), ("full", "ppo"), ("lora", "grpo"), ("lora", "dpo")]


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return random_base()


@pytest.mark.parametrize("name", list(TRAINER_CHECKS))
@pytest.mark.parametrize(("weights", "objective"), COMBINATIONS)
def test_torch_trainer(name: str, weights: str, objective: str, base: LoadedBase, tmp_path: Path) -> None:
    group_size = 1 if objective == "sft" else 4
    config = TrainingSection.model_validate({"objective": objective, "group_size": group_size})
    policy = PolicySection.model_validate({"weights": weights, "lora": LoraSection(rank=2, alpha=4)})
    case = TrainerCase(
        run_dir=tmp_path,
        base=base_weights_ref(base),
        codec=base.codec,
        make=lambda: TorchTrainer(base, DiskWeightStore(tmp_path), tmp_path, config, policy),
        group_size=group_size,
    )
    TRAINER_CHECKS[name](case)
