"""What a trainer and the processes of its group say to each other, over a socket that only the two of them hold.

    trainer ── Join, Open, then Train | PublishMerged | BaseTensors, one at a time ──► process
    trainer ◄─ one Answer to each ───────────────────────────────────────────────── process

A message is a JSON text, with records as `records.codec` writes them, and after it blobs: tables in Arrow's stream format,
tensors as safetensors. Nothing that runs code crosses. Driven by `deepspeed_group` on one side, `deepspeed_process` on the other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import safetensors.torch
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.records.codec import decode, encode
from coharness.records.training import JobResult, MergeJob, TrainJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Load the base, meet the others and build the engine; the first command."""

    rank: int
    size: int
    meeting_point: Path
    policy: PolicySection
    training: TrainingSection
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Serve this run, remembering nothing of an earlier one."""

    run_dir: Path
    training: TrainingSection
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Train:
    """Run an update; sent to all ranks at once."""

    job: TrainJob
    own: pa.Table
    borrowed: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishMerged:
    """Publish merged weights; sent to the first rank."""

    job: MergeJob
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class BaseTensors:
    """Tell the base's tensors; sent to the first rank."""


Command = Join | Open | Train | PublishMerged | BaseTensors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """How a command ended."""

    result: JobResult | None = None
    "Of a job."
    tensors: Mapping[str, Tensor] | None = None
    "Of the base."
    cpu_s: float = 0.0
    "Of this process, for this command."
    failure: str = ""
    "Not empty where the process cannot go on; it ends after this answer."


def send(connection: Connection, message: Command | Answer) -> None:
    """Write one message.

    Raises:
        OSError: the other end is gone, or takes nothing for longer than the socket allows.
    """
    values, blobs = _written(message)
    head = {"kind": type(message).__name__, "values": values, "num_blobs": len(blobs)}
    connection.send_bytes(json.dumps(head).encode())
    for blob in blobs:
        connection.send_bytes(blob)


def receive(connection: Connection) -> Any:
    """Read one message, a `Command` or an `Answer`.

    Raises:
        EOFError: the other end is gone.
        OSError: it stopped in the middle of a message.
    """
    head = json.loads(connection.recv_bytes())
    blobs = [connection.recv_bytes() for _ in range(head["num_blobs"])]
    return _read(head["kind"], head["values"], blobs)


def _written(message: Command | Answer) -> tuple[dict[str, Any], list[Any]]:
    match message:
        case Join():
            return {
                "rank": message.rank,
                "size": message.size,
                "meeting_point": str(message.meeting_point),
                "policy": message.policy.model_dump(mode="json"),
                "training": message.training.model_dump(mode="json"),
                "num_threads": message.num_threads,
            }, []
        case Open():
            return {
                "run_dir": str(message.run_dir),
                "training": message.training.model_dump(mode="json"),
                "resident_bytes": message.resident_bytes,
            }, []
        case Train():
            tables = [_table_bytes(message.own), _table_bytes(message.borrowed)]
            return {"job": encode(TrainJob, message.job)}, tables
        case PublishMerged():
            return {"job": encode(MergeJob, message.job)}, [_tensor_bytes(message.tensors)]
        case BaseTensors():
            return {}, []
        case Answer():
            result = None if message.result is None else encode(JobResult, message.result)
            tensors = [] if message.tensors is None else [_tensor_bytes(message.tensors)]
            return {"result": result, "cpu_s": message.cpu_s, "failure": message.failure}, tensors


def _read(kind: str, values: dict[str, Any], blobs: list[bytes]) -> Command | Answer:
    match kind:
        case "Join":
            return Join(
                rank=values["rank"],
                size=values["size"],
                meeting_point=Path(values["meeting_point"]),
                policy=PolicySection.model_validate(values["policy"]),
                training=TrainingSection.model_validate(values["training"]),
                num_threads=values["num_threads"],
            )
        case "Open":
            return Open(
                run_dir=Path(values["run_dir"]),
                training=TrainingSection.model_validate(values["training"]),
                resident_bytes=values["resident_bytes"],
            )
        case "Train":
            own, borrowed = (pa.ipc.open_stream(blob).read_all() for blob in blobs)
            return Train(job=decode(TrainJob, values["job"]), own=own, borrowed=borrowed)
        case "PublishMerged":
            return PublishMerged(job=decode(MergeJob, values["job"]), tensors=safetensors.torch.load(blobs[0]))
        case "BaseTensors":
            return BaseTensors()
        case _:
            result = None if values["result"] is None else decode(JobResult, values["result"])
            tensors = safetensors.torch.load(blobs[0]) if blobs else None
            return Answer(result=result, tensors=tensors, cpu_s=values["cpu_s"], failure=values["failure"])


def _table_bytes(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    # Copies, since a format of whole tensors refuses two that share memory.
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    written: bytes = safetensors.torch.save(plain)
    return written
