"""A trainer group fails as a whole, in time and by name, and leaves nothing running."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base
from coharness.policy.tiny import build_tokenizer, save_base
from coharness.policy.training.deepspeed_group import TrainerGroup
from coharness.policy.training.deepspeed_messages import BaseTensors, PublishMerged, Train
from coharness.policy.training.deepspeed_process import FAILED
from coharness.policy.training.deepspeed_trainer import DeepSpeedTrainer
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.ids import JobId, PolicyId
from coharness.records.training import JobResult, JobStatus, MergeJob
from coharness.testing.toy_training import base_version, random_base, toy_episodes, toy_job

GONE_S = 30.0
"""How long a process may take to be gone on a busy machine."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> PolicySection:
    path = tmp_path_factory.mktemp("base") / "random"
    save_base(random_base().model, build_tokenizer(), path, {})
    return PolicySection.model_validate({"base": str(path)})


@pytest.fixture(scope="module")
def base(policy: PolicySection) -> LoadedBase:
    return load_base(resolve_base(policy.base))


def section(**settings: float) -> TrainingSection:
    return TrainingSection.model_validate({"backend": "deepspeed", "deepspeed": {"world_size": 2, **settings}})


@pytest.fixture
def groups(policy: PolicySection) -> Iterator[list[TrainerGroup]]:
    """All groups that a test started."""
    started: list[TrainerGroup] = []
    yield started
    for group in started:
        group.close()


def trainer_of(
    groups: list[TrainerGroup], policy: PolicySection, run_dir: Path, settings: TrainingSection
) -> DeepSpeedTrainer:
    def start() -> TrainerGroup:
        groups.append(TrainerGroup(policy, settings))
        return groups[-1]

    return DeepSpeedTrainer(start, run_dir, settings)


def one_update(trainer: DeepSpeedTrainer, base: LoadedBase, step: int) -> JobResult:
    items = range(100 * step, 100 * step + 8)
    own = toy_episodes(base.codec, items, seed=step)
    start = base_version(base_weights_ref(base))
    return trainer.train(toy_job(start, items, step=step), own, own.slice(0, 0))


def is_gone(process_id: int) -> bool:
    try:
        text = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(process_ids: list[int]) -> None:
    until = time.monotonic() + GONE_S
    while not all(map(is_gone, process_ids)):
        assert time.monotonic() < until, f"still there: {[p for p in process_ids if not is_gone(p)]}"
        time.sleep(0.05)


def test_a_rank_that_hangs_fails_the_job_within_the_exchange_deadline_and_the_next_job_runs(
    groups: list[TrainerGroup], policy: PolicySection, base: LoadedBase, tmp_path: Path
) -> None:
    trainer = trainer_of(groups, policy, tmp_path, section(collective_s=3, job_s=300))
    assert one_update(trainer, base, 1).status is JobStatus.DONE
    ids = groups[0].process_ids
    os.kill(ids[1], signal.SIGSTOP)
    result = one_update(trainer, base, 2)
    assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    assert "rank 0" in result.message
    assert result.wall_s < 100, "the exchange's deadline and not the job's must have ended it"
    wait_until_gone(ids)
    assert one_update(trainer, base, 2).status is JobStatus.DONE
    assert len(groups) == 2


def test_a_rank_that_dies_fails_the_job_and_names_it(
    groups: list[TrainerGroup], policy: PolicySection, base: LoadedBase, tmp_path: Path
) -> None:
    trainer = trainer_of(groups, policy, tmp_path, section(collective_s=200, job_s=300))
    ids = groups[0].process_ids
    # Stopped first, so that the job is certainly under way when it dies.
    os.kill(ids[1], signal.SIGSTOP)
    killer = threading.Timer(1.0, os.kill, (ids[1], signal.SIGKILL))
    killer.start()
    result = one_update(trainer, base, 1)
    killer.join()
    assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    assert f"rank 1 ended with code {-signal.SIGKILL}" in result.message
    wait_until_gone(ids)


def test_a_group_that_died_between_jobs_is_replaced(
    groups: list[TrainerGroup], policy: PolicySection, base: LoadedBase, tmp_path: Path
) -> None:
    trainer = trainer_of(groups, policy, tmp_path, section())
    first = one_update(trainer, base, 1)
    assert first.version is not None
    os.kill(groups[0].process_ids[1], signal.SIGKILL)
    until = time.monotonic() + GONE_S
    while groups[0].is_alive:
        assert time.monotonic() < until, "a group that lost a rank still calls itself alive"
        time.sleep(0.05)
    items = range(200, 208)
    own = toy_episodes(base.codec, items)
    result = trainer.train(toy_job(first.version, items, step=2), own, own.slice(0, 0))
    assert result.status is JobStatus.DONE, result
    assert len(groups) == 2


def test_a_job_past_its_deadline_ends_the_group(
    groups: list[TrainerGroup], policy: PolicySection, base: LoadedBase
) -> None:
    group = TrainerGroup(policy, section())
    groups.append(group)
    ids = group.process_ids
    for process_id in ids:
        os.kill(process_id, signal.SIGSTOP)
    with pytest.raises(BoundaryError, match="BaseTensors took rank 0 of 2 more than 1 s") as caught:
        group.ask_first(BaseTensors(), deadline_s=1.0)
    assert caught.value.boundary is Boundary.DEADLINE
    wait_until_gone(ids)
    assert not group.is_alive
    assert group.process_ids == []


def test_a_rank_that_does_not_read_ends_the_group_also_where_the_command_is_large(
    groups: list[TrainerGroup], policy: PolicySection
) -> None:
    group = TrainerGroup(policy, section(collective_s=2))
    groups.append(group)
    ids = group.process_ids
    for process_id in ids:
        os.kill(process_id, signal.SIGSTOP)
    job = MergeJob(id=JobId(1), child=PolicyId("p9"), rule="linear", parents=(), weights=())
    command = PublishMerged(job=job, tensors={"w": torch.zeros(2**22)})
    with pytest.raises(BoundaryError, match="does not take PublishMerged"):
        group.ask_first(command, deadline_s=60)
    wait_until_gone(ids)
    with pytest.raises(BoundaryError, match="after it was closed"):
        group.ask_first(BaseTensors(), deadline_s=60)


def test_what_cannot_be_done_ends_the_group_with_its_reason(
    groups: list[TrainerGroup], policy: PolicySection, base: LoadedBase
) -> None:
    group = TrainerGroup(policy, section())
    groups.append(group)
    own = toy_episodes(base.codec, range(4))
    job = toy_job(base_version(base_weights_ref(base)), range(4), step=1)
    with pytest.raises(BoundaryError, match=r"failed in Train: rank 0 said .*; rank 1 said") as caught:
        group.ask_all(Train(job=job, own=own, borrowed=own.slice(0, 0)), deadline_s=120)  # before Open
    assert caught.value.boundary is Boundary.WORKER
    assert not group.is_alive


def test_a_base_that_is_not_there_is_named() -> None:
    with pytest.raises(BoundaryError, match="PreflightError: base '/no/such/base' is not at /no/such/base"):
        TrainerGroup(PolicySection.model_validate({"base": "/no/such/base"}), section())


def test_a_process_that_cannot_read_its_commands_ends() -> None:
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-m", "coharness.policy.training.deepspeed_process", str(theirs.fileno()), "/nowhere"]
    with ours, subprocess.Popen(words, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL) as process:
        theirs.close()
        connection = Connection(ours.detach())
        connection.send_bytes(b"not json")
        assert process.wait(timeout=120) == FAILED
        connection.close()


def test_no_process_outlives_a_trainer_that_was_killed(policy: PolicySection) -> None:
    code = (
        "import sys, time\n"
        "from coharness.config.schema import PolicySection, TrainingSection\n"
        "from coharness.policy.training.deepspeed_group import TrainerGroup\n"
        "policy = PolicySection.model_validate({'base': sys.argv[1]})\n"
        "training = TrainingSection.model_validate({'deepspeed': {'world_size': 2}})\n"
        "group = TrainerGroup(policy, training)\n"
        "print(*group.process_ids, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, policy.base], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        ids = [int(word) for word in trainer.stdout.readline().split()]
        assert len(ids) == 2
        trainer.kill()
    wait_until_gone(ids)
