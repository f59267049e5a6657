"""What a trainer sees of an objective."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from coharness.policy.objectives.terms import LossParts, Mean, Needs, Prepared, Snapshot, TokenBatch
from coharness.policy.rows import Rows


class Objective(Protocol):
    """What the trainer needs of an objective."""

    @property
    def mean(self) -> Mean:
        """What its loss is averaged over."""
        ...

    @property
    def needs(self) -> Needs:
        """What must be there besides the log-probabilities of its tokens."""
        ...

    def rows(self, own: pa.Table, borrowed: pa.Table, *, seed: int, max_tokens: int) -> Rows:
        """The rows it learns from in one update."""
        ...

    def prepare(self, rows: Rows, snapshot: Snapshot) -> Prepared | None:
        """What it fixes before the first step of the update that learns from `rows`."""
        ...

    def loss(self, batch: TokenBatch) -> LossParts:
        """Its loss on one micro-batch, of whole units of rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedObjective:
    """An objective and its weight in the sum that is minimised."""

    objective: Objective
    weight: float
    constant_length: int = 64
    "Tokens that a row counts as where its mean is `Mean.CONSTANT`."
