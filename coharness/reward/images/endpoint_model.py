"""A model that sees images, behind endpoints: where it is, what asking it may cost, and the judges it makes of libraries.

Plain values alone, so that another process opens the same model; each process then has a budget of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.records.ids import JSON
from coharness.reward.images.work import instruments_of
from coharness.reward.judges.budget import Budget
from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.judges.client import ChatClient
from coharness.reward.judges.pool import EndpointPool
from coharness.reward.judges.secrets import key_from_env
from coharness.reward.library.library import Library
from coharness.reward.library.router import CachedRouter, LexicalRouter
from coharness.reward.library.vlm import Complete, VlmJudge, over_endpoints

MAX_TOKENS = 500_000_000
LookForFlags = Callable[[bytes, bytes], tuple[str, ...]]
"""(source, candidate) -> what is suspicious in the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointModel:
    """How a model is asked."""

    endpoints: tuple[str, ...]
    name: str
    "What it is called there."
    key_env: str | None = None
    "Environment variable that holds its key; read where the model is opened, and in no file."
    cache: str | None = None
    "File of judgments; processes may share it."
    max_calls: int = 100_000
    "Paid calls of one process."

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("--endpoint needs --model, the model's name there")

    @classmethod
    def from_json(cls, data: Mapping[str, JSON]) -> "EndpointModel":
        """The inverse of `to_json`."""
        return cls(**{**data, "endpoints": tuple(data["endpoints"])})

    def to_json(self) -> dict[str, Any]:
        """Its values, the key not among them."""
        return {**asdict(self), "endpoints": list(self.endpoints)}

    def shared_by(self, processes: int, cache: Path) -> "EndpointModel":
        """What each of some processes may spend, with judgments in one file where none was named."""
        return replace(self, max_calls=self.max_calls // processes, cache=self.cache or str(cache))

    def open(self, flags: LookForFlags | None = None) -> tuple[Complete, Callable[[Library], VlmJudge]]:
        """What completes messages, and what makes the judge of a library; both within one budget.

        Args:
            flags: looks at every image for what should not sway a judge; costs more than the measuring, and is for people.

        Raises:
            PreflightError: the key's variable is not set.
        """
        key = key_from_env(self.key_env)
        clients = [ChatClient(base=base, model=self.name, key=key, max_output_tokens=2048) for base in self.endpoints]
        kept = JudgmentCache(None if self.cache is None else Path(self.cache))
        complete = over_endpoints(EndpointPool(clients), Budget(max_calls=self.max_calls, max_tokens=MAX_TOKENS))
        router = CachedRouter(LexicalRouter(), kept)

        def make(library: Library) -> VlmJudge:
            return VlmJudge(
                complete, library, router, model=self.name, instruments=instruments_of, cache=kept, flags=flags
            )

        return complete, make
