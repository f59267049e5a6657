"""What a vLLM generator and the process that holds its engine say to each other.

    generator ── Open, then for each call Write, perhaps Abort ──────────────► process
    generator ◄─ Ready, then for each Write any number of Alive, one answer ── process

Written with `records.codec` as JSON lines. Driven by `vllm_engine` on one side and `vllm_process` on the other.
"""

from dataclasses import dataclass
from typing import Any

from coharness.records.codec import decode, encode
from coharness.records.protocols import Generation, GenerationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Start the engine."""

    base: str
    "As `policy.base` names it."
    run_dir: str
    dtype: str
    max_context: int
    batch_size: int
    lora_rank: int
    "Rank of the run's adapters; 0 where members are full weights."
    max_adapters: int
    adapters_per_batch: int
    kv_cache_mib: int
    eager: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write these completions; one call at a time."""

    requests: tuple[GenerationRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Withdraw what is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The engine is up."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """Work goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The completions, in the order of the requests."""

    answers: tuple[Generation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was written."""

    error: str
    "`weights` or `value` where the request is at fault and the engine is well; `engine` where it is not."
    message: str


Order = Open | Write | Abort
Report = Ready | Alive | Written | Refused


def order_to_json(order: Order) -> Any:
    """JSON values of an order."""
    return encode(Order, order)


def order_from_json(data: Any) -> Order:
    """The inverse of `order_to_json`."""
    order: Order = decode(Order, data)
    return order


def report_to_json(report: Report) -> Any:
    """JSON values of a report."""
    return encode(Report, report)


def report_from_json(data: Any) -> Report:
    """The inverse of `report_to_json`."""
    report: Report = decode(Report, data)
    return report
