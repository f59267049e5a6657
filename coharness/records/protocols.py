"""The seams: what the loop needs of task sources, engines, trainers, stores and fleets, named for the caller's need.

Every protocol has a conformance suite in `coharness.testing`, which each implementation passes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from coharness.records.episode import StopReason
from coharness.records.events import Capacity, Command, Event
from coharness.records.ids import ItemId
from coharness.records.policy import WeightsRef
from coharness.records.task import FamilySpec, Task, VerifierSpec
from coharness.records.training import JobResult, TrainJob
from coharness.records.work import BatchResult, WorkBatch


@runtime_checkable
class TaskSource(Protocol):
    """Makes tasks; a pure function of (family, level, seed)."""

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The families it offers."""
        ...

    def make(self, family: str, level: int, seed: int) -> Task:
        """The task of this recipe. A finite family takes `seed` modulo its number of tasks at that level."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a verifier says of one answer."""

    correct: bool
    partial: float
    "Partial credit in [0, 1]; 1 where correct."
    feedback: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    "Further parts of a reward that this verifier measured, each in [0, 1]; their names begin with its kind, as `code/time`."


class Verifier(Protocol):
    """Checks answers by their task's spec; a failure raises BoundaryError(VERIFIER), never returns a score."""

    def check(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
        """Check one answer that was read from a completion."""
        ...

    def close(self) -> None:
        """End the processes it started."""
        ...


class TextCodec(Protocol):
    """Text to token ids and back, as the base wants it."""

    @property
    def eos_id(self) -> int:
        """The token that ends a completion."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """A user's prompt up to where the policy begins to write; a chat base applies its template here."""
        ...

    def encode_turn(self, text: str) -> list[int]:
        """A further user turn after the policy wrote its end token, up to where it writes again."""
        ...

    def encode_completion(self, text: str) -> list[int]:
        """A completion as the policy would have written it, end token included."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """What a generation engine can do; checked against the run's config before work starts."""

    name: str
    kinds: frozenset[str]
    "WeightsKind values it can load."
    max_adapters: int
    "Distinct LoRA versions it can hold at once; 0 where it has no such bound."
    counter_noise: bool
    "Whether sampling noise depends on (episode seed, position) alone."
    exact_tokens: bool = True
    "Whether ids and log-probabilities are the very ones that were drawn, as training needs them."


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One completion to write."""

    prompt_ids: tuple[int, ...]
    weights: WeightsRef
    seed: int
    position: int
    "Index of the first token in the episode's stream of noise; a later turn goes on where the last one ended."
    temperature: float
    "0 is greedy."
    max_new_tokens: int
    deadline_s: float | None = None
    "Seconds from the call after which it is withdrawn; what was written by then comes back, stopped by ABORTED."


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One completion: ids [T] (end token included where it was written), and log-probabilities [T]."""

    output_ids: list[int]
    logprobs: list[float]
    stop_reason: StopReason
    written_by: str = ""
    "Digest of the weights that wrote it, as the engine that holds them says; the loop compares it with what it asked for."


class Generator(Protocol):
    """A generation engine. Answers stand in the order of the requests; one call at a time."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do."""
        ...

    @property
    def codec(self) -> TextCodec:
        """The base's text codec."""
        ...

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Write all completions; weights are loaded, verified by digest and canary, and cached as needed."""
        ...

    def abort(self) -> None:
        """Withdraw what is being written, from any thread: the call in progress soon returns, the unfinished ABORTED."""
        ...

    def close(self) -> None:
        """End what it started, processes by their ids; a closed engine is not used again, and may be closed again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRequest:
    """A prompt, and tokens of which one may come next."""

    prompt_ids: tuple[int, ...]
    weights: WeightsRef
    choices: tuple[int, ...]


class ChoiceReader(Protocol):
    """An engine that says how likely given next tokens are, and writes nothing; a judge's verdict is read through it."""

    @property
    def codec(self) -> TextCodec:
        """The base's text codec."""
        ...

    def read(self, requests: Sequence[ChoiceRequest]) -> list[tuple[float, ...]]:
        """Log-probability of each choice at temperature 1, in nats, request by request; weights are verified as in `generate`."""
        ...


class JudgingEngine(Generator, ChoiceReader, Protocol):
    """An engine that writes and reads: a judge that reasons needs both."""


class Trainer(Protocol):
    """A training backend. Merged weights reach it from `coharness.loop.jobs`, which knows the rules."""

    def train(self, job: TrainJob, own: pa.Table, borrowed: pa.Table) -> JobResult:
        """Run one update on episode tables (`EPISODE_SCHEMA`) and publish the new version."""
        ...


class ReplayStore(Protocol):
    """Owns the bytes of episodes."""

    def append(self, table: pa.Table) -> None:
        """Keep episodes; rows whose item is already there are ignored, so that a repeated delivery is harmless."""
        ...

    def fetch(self, items: Sequence[ItemId]) -> pa.Table:
        """All episodes of these items.

        Raises:
            KeyError: an item is not in the store.
        """
        ...


class WeightStore(Protocol):
    """Owns published weights."""

    def retire(self, uris: Sequence[str]) -> None:
        """Delete folders of weights that the core no longer needs; one that is gone already is no error."""
        ...


class RolloutWorker(Protocol):
    """Runs batches of work items; stateless but for caches."""

    def run(self, batch: WorkBatch) -> tuple[BatchResult, pa.Table]:
        """Outcomes of all items, and the bodies of the episodes that were done."""
        ...


class Fleet(Protocol):
    """Carries out directives and says what happened; the in-process and the Ray fleet both pass its contract suite.

    Each leased item comes back in exactly one BatchDone, whatever dies; each job in exactly one JobDone.
    """

    def capacity(self) -> Capacity:
        """What it could take on now."""
        ...

    def submit(self, commands: Sequence[Command]) -> None:
        """Begin to carry these out; returns at once. More than the capacity is queued, never refused."""
        ...

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits at most `timeout_s` for something to happen."""
        ...

    def close(self, deadline_s: float) -> None:
        """End everything it started, by id, within `deadline_s`."""
        ...
