"""The DeepSpeed trainer keeps the contract of training backends at every stage, and computes what the torch trainer computes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from coharness.config.deepspeed import DeepSpeedSection
from coharness.config.schema import LoraSection, PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base
from coharness.policy.tiny import build_tokenizer, save_base
from coharness.policy.training.deepspeed_group import TrainerGroup
from coharness.policy.training.deepspeed_trainer import DeepSpeedTrainer
from coharness.policy.training.torch_trainer import TorchTrainer
from coharness.policy.weights import DiskWeightStore, read_optimizer, read_weights
from coharness.records.policy import PolicyVersion, WeightsRef
from coharness.records.training import JobResult
from coharness.testing.toy_training import base_version, random_base, toy_episodes, toy_job
from coharness.testing.trainers import TRAINER_CHECKS, MemberTrainer, TrainerCase

LORA = LoraSection(rank=2, alpha=4)
ROW_TOKENS = 256
"""Small, so that a step has several micro-batches to deal out."""


@dataclass(frozen=True)
class Shape:
    stage: int
    world_size: int
    weights: str = "full"
    dtype: str = "float32"
    checkpointing: bool = False
    objective: str = "sft"
    "Of its contract."

    def __str__(self) -> str:
        words = [f"zero{self.stage}", f"{self.world_size}ranks", self.weights, self.dtype]
        return "-".join(words + ["checkpointing"] * self.checkpointing)

    def section(self) -> DeepSpeedSection:
        return DeepSpeedSection.model_validate(
            {"stage": self.stage, "world_size": self.world_size, "gradient_checkpointing": self.checkpointing}
        )


SHAPES = [
    *(Shape(stage, world_size) for stage in (0, 1, 2, 3) for world_size in (1, 2)),
    Shape(3, 3),
    Shape(1, 2, "lora", objective="sft+grpo"),
    Shape(3, 2, "lora", objective="ppo"),
    Shape(1, 2, "full", "bfloat16"),
    Shape(3, 2, "lora", "bfloat16"),
    Shape(1, 1, checkpointing=True),
    Shape(3, 2, checkpointing=True),
]
STATE_CHECKS = [
    "a_restart_changes_nothing",
    "a_member_in_memory_is_used_only_for_its_own_version",
    "members_take_turns_as_if_each_were_alone",
    "what_is_read_from_disk_replaces_all_that_was_there",
    "hyperparameters_are_the_jobs",
    "a_non_finite_update_is_quarantined",
]
"""Those of `TRAINER_CHECKS` that a stage could break."""


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "random"
    save_base(random_base().model, build_tokenizer(), path, {})
    return path


class Groups:
    """One living group of the shape that is tested; another one when a test has ended it."""

    def __init__(self, shape: Shape, base_path: Path) -> None:
        self.shape = shape
        self.policy = PolicySection.model_validate(
            {"base": str(base_path), "weights": shape.weights, "dtype": shape.dtype, "lora": LORA}
        )
        self.base = load_base(resolve_base(str(base_path)), shape.dtype)
        self._group = self._new()

    def start(self) -> TrainerGroup:
        if not self._group.is_alive:
            self._group = self._new()
        return self._group

    def close(self) -> None:
        self._group.close()

    def _new(self) -> TrainerGroup:
        return TrainerGroup(self.policy, training("sft", self.shape))


class Holder:
    """The groups of the last shape that was asked for: starting one takes longer than any test."""

    def __init__(self, base_path: Path) -> None:
        self._base_path = base_path
        self._groups: Groups | None = None

    def of(self, shape: Shape) -> Groups:
        if self._groups is None or self._groups.shape != shape:
            self.close()
            self._groups = Groups(shape, self._base_path)
        return self._groups

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()


@pytest.fixture(scope="module")
def holder(base_path: Path) -> Iterator[Holder]:
    made = Holder(base_path)
    yield made
    made.close()


@pytest.fixture
def groups(request: pytest.FixtureRequest, holder: Holder) -> Groups:
    return holder.of(request.param)


def training(objective: str, shape: Shape) -> TrainingSection:
    return TrainingSection.model_validate(
        {
            "backend": "deepspeed",
            "objective": objective,
            "group_size": 1 if objective == "sft" else 4,
            "row_tokens": ROW_TOKENS,
            "deepspeed": shape.section(),
        }
    )


def two_updates(trainer: MemberTrainer, base: LoadedBase, ref: WeightsRef, group_size: int) -> list[JobResult]:
    """Two updates of two or more optimizer steps each, with rows of different lengths."""
    version, results = base_version(ref), []
    for step in (1, 2):
        items = range(1000 * step, 1000 * step + 160 // group_size)
        half = len(items) // 2
        tables = [
            toy_episodes(base.codec, part, group_size=group_size, seed=step, word_length=length)
            for part, length in ((items[:half], 3), (items[half:], 9))
        ]
        own = pa.concat_tables(tables)
        result = trainer.train(toy_job(version, items, step=step, learning_rate=3e-3), own, own.slice(0, 0))
        assert result.version is not None, result
        version = result.version
        results.append(result)
    return results


def keeps_the_contract(name: str, groups: Groups, run_dir: Path) -> None:
    section = training(groups.shape.objective, groups.shape)
    case = TrainerCase(
        run_dir=run_dir,
        base=base_weights_ref(groups.base),
        codec=groups.base.codec,
        make=lambda: DeepSpeedTrainer(groups.start, run_dir, section),
        group_size=section.group_size,
    )
    TRAINER_CHECKS[name](case)


def trains_as_torch(objective: str, groups: Groups, run_dir: Path) -> None:
    """The same losses and other metrics, and in the end the same weights and optimizer state."""
    section = training(objective, groups.shape)
    ref = base_weights_ref(groups.base)
    ours, theirs = run_dir / "deepspeed", run_dir / "torch"
    got = two_updates(DeepSpeedTrainer(groups.start, ours, section), groups.base, ref, section.group_size)
    torch_trainer = TorchTrainer(groups.base, DiskWeightStore(theirs), theirs, section, groups.policy)
    expected = two_updates(torch_trainer, groups.base, ref, section.group_size)
    for left, right in zip(got, expected, strict=True):
        assert set(left.metrics) == set(right.metrics)
        assert left.metrics["steps/taken"] >= 2
        assert dict(left.metrics) == pytest.approx(dict(right.metrics), rel=1e-4, abs=1e-4)
        assert left.num_rows == right.num_rows
    assert_close(ours, got[-1].version, theirs, expected[-1].version)


def cases() -> list[Any]:
    """(shape, rule, what it is of): all where all is divided, the most telling elsewhere; by shape, so that each starts once."""
    found = []
    for shape in SHAPES:
        is_full = shape.stage in (1, 3) and shape.world_size == 2 and not shape.checkpointing
        checks = [] if shape.checkpointing else list(TRAINER_CHECKS) if is_full else STATE_CHECKS
        objectives = ["sft", "sft+grpo", "ppo", "kto"] if is_full else ["sft"]
        found += [(shape, keeps_the_contract, check) for check in checks]
        # The torch trainer keeps no float32 masters to compare with.
        found += [(shape, trains_as_torch, o) for o in objectives if shape.dtype == "float32"]
    return [pytest.param(shape, rule, of, id=f"{shape}-{rule.__name__}-{of}") for shape, rule, of in found]


@pytest.mark.parametrize(("groups", "rule", "of"), cases(), indirect=["groups"])
def test_a_group(groups: Groups, rule: Callable[[str, Groups, Path], None], of: str, tmp_path: Path) -> None:
    rule(of, groups, tmp_path)


def test_packed_rows_train_the_same(base_path: Path, tmp_path: Path) -> None:
    shape = Shape(1, 2)
    made = Groups(shape, base_path)
    try:
        ref = base_weights_ref(made.base)
        ends = []
        for packing in ("never", "always"):
            section = training("sft", shape).model_copy(update={"packing": packing})
            trainer = DeepSpeedTrainer(made.start, tmp_path / packing, section)
            ends.append(two_updates(trainer, made.base, ref, 1)[-1].version)
    finally:
        made.close()
    assert_close(tmp_path / "never", ends[0], tmp_path / "always", ends[1])


def test_a_version_goes_on_under_another_stage_world_size_and_backend(base_path: Path, tmp_path: Path) -> None:
    """Torch, then ZeRO-3 on two ranks, then ZeRO-1 on one, then torch: as torch all along. Each is a new process."""
    policy = PolicySection.model_validate({"base": str(base_path)})
    base = load_base(resolve_base(str(base_path)))
    mixed, plain = tmp_path / "mixed", tmp_path / "torch"

    def torch_trainer(run_dir: Path) -> TorchTrainer:
        return TorchTrainer(base, DiskWeightStore(run_dir), run_dir, training("sft", Shape(1, 1)), policy)

    def step_on(trainer: MemberTrainer, version: PolicyVersion, step: int) -> PolicyVersion:
        items = range(100 * step, 100 * step + 24)
        own = toy_episodes(base.codec, items, seed=step)
        result = trainer.train(toy_job(version, items, step=step), own, own.slice(0, 0))
        assert result.version is not None, result
        return result.version

    version = step_on(torch_trainer(mixed), base_version(base_weights_ref(base)), 1)
    for step, shape in ((2, Shape(3, 2)), (3, Shape(1, 1))):
        section = training("sft", shape)
        trainer = DeepSpeedTrainer(lambda section=section: TrainerGroup(policy, section), mixed, section)
        try:
            version = step_on(trainer, version, step)
        finally:
            trainer.close()
    version = step_on(torch_trainer(mixed), version, 4)

    expected = base_version(base_weights_ref(base))
    trainer = torch_trainer(plain)
    for step in (1, 2, 3, 4):
        expected = step_on(trainer, expected, step)
    assert_close(mixed, version, plain, expected)


def test_bfloat16_publishes_what_serves_and_keeps_float32_masters(base_path: Path, tmp_path: Path) -> None:
    made = Groups(Shape(1, 1, "full", "bfloat16"), base_path)
    try:
        trainer = DeepSpeedTrainer(made.start, tmp_path, training("sft", made.shape))
        version = two_updates(trainer, made.base, base_weights_ref(made.base), 1)[-1].version
    finally:
        made.close()
    assert version is not None
    weights, state = read_weights(tmp_path, version.weights), read_optimizer(tmp_path, version.weights)
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    for name, tensor in weights.items():
        master = state[f"master.{name}"]
        assert master.dtype is torch.float32
        assert torch.equal(master.to(torch.bfloat16), tensor)
    assert any(not torch.equal(state[f"master.{name}"], tensor.float()) for name, tensor in weights.items())


def assert_close(left_dir: Path, left: PolicyVersion | None, right_dir: Path, right: PolicyVersion | None) -> None:
    assert left is not None
    assert right is not None
    for read in (read_weights, read_optimizer):
        one, two = read(left_dir, left.weights), read(right_dir, right.weights)
        assert set(one) == set(two)
        for name in one:
            assert torch.allclose(one[name].float(), two[name].float(), rtol=1e-4, atol=1e-4), name
