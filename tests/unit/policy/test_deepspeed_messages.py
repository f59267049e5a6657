"""Messages between a trainer and its group arrive as they were sent."""

import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.training.deepspeed_messages import (
    Answer,
    BaseTensors,
    Command,
    Join,
    Open,
    PublishMerged,
    Train,
    receive,
    send,
)
from coharness.records.errors import Boundary
from coharness.records.ids import JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.training import JobResult, JobStatus, MergeJob
from coharness.testing.toy_training import random_base, toy_episodes, toy_job

POLICY = PolicySection.model_validate({"weights": "lora", "dtype": "bfloat16"})
TRAINING = TrainingSection.model_validate({"objective": "ppo", "deepspeed": {"stage": 3, "world_size": 2}})
VERSION = PolicyVersion(
    ref=VersionRef(PolicyId("p1"), 4),
    weights=WeightsRef(
        uri="weights/p1/v4", digest="d", kind=WeightsKind.LORA, num_bytes=7, has_optimizer=True, canary=-1.25
    ),
    parents=(VersionRef(PolicyId("p1"), 3),),
    operator="train",
)
RESULT = JobResult(
    job=JobId(3),
    status=JobStatus.FAILED,
    version=VERSION,
    metrics={"a/b": 0.1},
    boundary=Boundary.WEIGHTS,
    message="no",
)
MERGE = MergeJob(id=JobId(5), child=PolicyId("p9"), rule="linear", parents=(VERSION, VERSION), weights=(0.25, 0.75))


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    left, right = (Connection(end.detach()) for end in socket.socketpair())
    yield left, right
    left.close()
    right.close()


def carried(ends: tuple[Connection, Connection], message: Command | Answer) -> Any:
    # Beside, since a message may be larger than what the socket holds.
    sender = threading.Thread(target=send, args=(ends[0], message))
    sender.start()
    found = receive(ends[1])
    sender.join(timeout=60)
    return found


@pytest.mark.parametrize(
    "message",
    [
        Join(rank=1, size=2, meeting_point=Path("a/b"), policy=POLICY, training=TRAINING, num_threads=3),
        Open(run_dir=Path("run"), training=TRAINING, resident_bytes=2**40),
        BaseTensors(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_plain_commands_arrive(ends: tuple[Connection, Connection], message: Command) -> None:
    assert carried(ends, message) == message


def test_a_job_arrives_with_its_episodes(ends: tuple[Connection, Connection]) -> None:
    own = toy_episodes(random_base().codec, range(200), group_size=2)
    job = toy_job(VERSION, range(200), step=5)
    found = carried(ends, Train(job=job, own=own, borrowed=own.slice(0, 0)))
    assert isinstance(found, Train)
    assert found.job == job
    assert found.own.equals(own, check_metadata=True)
    assert found.borrowed.num_rows == 0
    assert found.borrowed.schema == own.schema


def test_tensors_arrive_bit_for_bit_also_where_they_share_memory(ends: tuple[Connection, Connection]) -> None:
    whole = torch.tensor([float("nan"), -0.0, 1e-45, 3.0])
    tensors = {"whole": whole, "half": whole[:2], "narrow": torch.ones(2, 3, dtype=torch.bfloat16).T}
    for found in (carried(ends, PublishMerged(job=MERGE, tensors=tensors)), carried(ends, Answer(tensors=tensors))):
        assert {name: t.shape for name, t in found.tensors.items()} == {n: t.shape for n, t in tensors.items()}
        for name, tensor in tensors.items():
            got = found.tensors[name]
            assert got.dtype is tensor.dtype
            assert torch.equal(got.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8))
    assert found.result is None


def test_results_and_failures_arrive(ends: tuple[Connection, Connection]) -> None:
    found = carried(ends, Answer(result=RESULT, cpu_s=1.5))
    assert (found.result, found.cpu_s, found.failure, found.tensors) == (RESULT, 1.5, "", None)
    assert carried(ends, Answer(failure="ValueError: why")).failure == "ValueError: why"
    assert carried(ends, PublishMerged(job=MERGE, tensors={})).job == MERGE


def test_a_closed_end_is_an_end_of_file(ends: tuple[Connection, Connection]) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1])
