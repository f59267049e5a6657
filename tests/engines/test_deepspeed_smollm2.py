"""Adapters of a real base: ZeRO-1 and ZeRO-3 on two ranks train the losses that torch trains."""

from pathlib import Path

import pytest

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base
from coharness.policy.training.deepspeed_group import TrainerGroup
from coharness.policy.training.deepspeed_trainer import DeepSpeedTrainer
from coharness.policy.training.torch_trainer import TorchTrainer
from coharness.policy.weights import DiskWeightStore
from coharness.records.errors import PreflightError
from coharness.testing.toy_training import base_version, toy_episodes, toy_job
from coharness.testing.trainers import MemberTrainer

pytestmark = [pytest.mark.slow, pytest.mark.real_weights]

POLICY = PolicySection.model_validate({"base": "smollm2", "weights": "lora", "lora": {"rank": 4, "alpha": 8}})


def section(stage: int) -> TrainingSection:
    return TrainingSection.model_validate(
        {"backend": "deepspeed", "row_tokens": 256, "deepspeed": {"stage": stage, "world_size": 2}}
    )


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    try:
        return load_base(resolve_base(POLICY.base))
    except PreflightError as error:
        pytest.skip(str(error))


def losses(trainer: MemberTrainer, base: LoadedBase) -> list[float]:
    version, found = base_version(base_weights_ref(base)), []
    for step in (1, 2, 3):
        items = range(100 * step, 100 * step + 8)
        own = toy_episodes(base.codec, items, seed=step)
        result = trainer.train(toy_job(version, items, step=step), own, own.slice(0, 0))
        assert result.version is not None, result
        version = result.version
        found.append(result.metrics["loss/sft"])
    return found


@pytest.fixture(scope="module")
def expected(base: LoadedBase, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    run_dir = tmp_path_factory.mktemp("torch")
    return losses(TorchTrainer(base, DiskWeightStore(run_dir), run_dir, section(1), POLICY), base)


@pytest.mark.parametrize("stage", [1, 3])
def test_two_ranks_train_the_losses_of_torch(
    stage: int, base: LoadedBase, expected: list[float], tmp_path: Path
) -> None:
    trainer = DeepSpeedTrainer(lambda: TrainerGroup(POLICY, section(stage)), tmp_path, section(stage))
    try:
        found = losses(trainer, base)
    finally:
        trainer.close()
    print(f"stage {stage}: {found}, torch: {expected}")
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert expected[-1] < expected[0]
