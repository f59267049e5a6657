"""What a study is: a question, cells that can run apart, and a summary of them all.

    cells(seeds) ──▶ run_cell, one process each ──▶ results of the cells ──▶ summarise ──▶ figures, tables, plots

A cell is one arm under one seed and one configuration. Invariants: a cell's result is a function of its record and of the code
that its process imports alone, so that a finished one is never run twice; a study's `summary.py` is no part of that code, and
`run_cell` takes nothing from there; `summarise` runs nothing and draws nothing without a seed of its own, so that it can be run
again at any time; seeds are the unit of every interval over runs, seeds × tasks are never pooled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from coharness.records.errors import CoharnessError
from coharness.records.ids import content_hash

JSON = Any
"""A value that survives a round trip through JSON."""


class StudyError(CoharnessError):
    """A study cannot be run, summarised or checked as it stands; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm under one seed; the unit that runs, resumes and is shared."""

    arm: str
    seed: int
    config: Mapping[str, JSON]
    "All that its result depends on besides the code, as JSON values: the run's config, digests of the files it reads."
    owner: str = ""
    "Study that runs it and keeps its folder, so that two studies can share cells; the study itself where left out."
    label: str = ""
    "What people see in place of the arm; no part of the record."

    @property
    def digest(self) -> str:
        """Content hash of the record; neither owner nor label is part of it."""
        return content_hash({"arm": self.arm, "seed": self.seed, "config": self.config})

    def __hash__(self) -> int:
        return hash((self.arm, self.seed, self.digest))

    def __str__(self) -> str:
        return f"{self.label or self.arm}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number that a study stands for."""

    name: str
    "Unique in the study; bars refer to it."
    value: float
    low: float | None
    "Lower end of its interval, None where there is none, e.g. with a single seed."
    high: float | None
    unit: str
    seeds: tuple[int, ...]
    "Seeds it was computed over."
    note: str = ""
    "What the interval is, and what the figure is not."


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table for people; numbers that are compared with a bar are figures as well."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.title!r} has {len(self.columns)} columns, got a row of {len(wrong[0])}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a study makes of its cells."""

    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    plots: Mapping[str, str] = field(default_factory=dict)
    "File name -> SVG text; written beside the README by a full run."

    def __post_init__(self) -> None:
        names = [figure.name for figure in self.figures]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"figures {', '.join(twice)} stand twice; bars could not tell them apart")


@runtime_checkable
class Study(Protocol):
    """One question under experiments/; the module's object of this shape is named STUDY."""

    @property
    def name(self) -> str:
        """Path below `experiments`, with slashes."""
        ...

    @property
    def question(self) -> str:
        """What it asks, in one sentence."""
        ...

    @property
    def num_seeds(self) -> int:
        """Seeds of a full run; they are 0, 1, ..."""
        ...

    @property
    def cell_deadline_s(self) -> float:
        """Seconds of wall time after which a cell counts as hung and is ended."""
        ...

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """What each arm may spend, e.g. {"rollouts": 102400}.

        Args:
            quick: whether it is the smoke.
            rollouts: another number of rollouts than the study's own; None for its own.

        Raises:
            ConfigError: `rollouts` is given and the study has no such budget.
        """
        ...

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> Sequence[Cell]:
        """All cells, each once, the longest first where that is known; the smoke's take 20 s together at most."""
        ...

    def run_cell(self, cell: Cell, folder: Path) -> Mapping[str, JSON]:
        """Run one cell in a process of its own and return its result as JSON values.

        Args:
            cell: what to run.
            folder: the cell's own. It may hold what an earlier, interrupted process left: go on with it, or clear it.
        """
        ...

    def summarise(self, cells: Mapping[Cell, Mapping[str, JSON]]) -> Summary:
        """Figures, tables and plots of all cells."""
        ...
