"""A grid of behaviour with the best known member of each cell (MAP-Elites; Mouret & Clune, 2015).

A newcomer takes a cell that is empty, or whose elite it beats with enough posterior probability. Invariants: at most one
elite a cell; elites stand in the order in which their cells were first taken.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from coharness.evolution.selection.contract import Individual


class Insertion(StrEnum):
    """What became of a newcomer."""

    NEW = "new"
    "Its cell was empty."
    IMPROVED = "improved"
    "It took the cell from a worse elite."
    REJECTED = "rejected"
    "The cell's elite is not surely worse."


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cells over ranges of descriptors; what lies outside counts to the cell at the edge."""

    lows: tuple[float, ...]
    highs: tuple[float, ...]
    bins: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (len(self.lows) == len(self.highs) == len(self.bins) > 0):
            raise ValueError(
                f"grid: got {len(self.lows)} lows, {len(self.highs)} highs and {len(self.bins)} bins; expected one each"
            )
        if any(not low < high for low, high in zip(self.lows, self.highs, strict=True)) or min(self.bins) < 1:
            raise ValueError(
                f"grid: expected low < high and at least one bin, got {self.lows}..{self.highs} in {self.bins} bins"
            )

    def cell(self, descriptor: tuple[float, ...]) -> tuple[int, ...]:
        """The cell of a descriptor.

        Raises:
            ValueError: it has another number of entries, or one is not finite.
        """
        if len(descriptor) != len(self.bins) or not all(map(math.isfinite, descriptor)):
            raise ValueError(f"descriptor: got {descriptor}, expected {len(self.bins)} finite numbers")
        return tuple(
            min(max(math.floor((x - low) / (high - low) * num), 0), num - 1)
            for x, low, high, num in zip(descriptor, self.lows, self.highs, self.bins, strict=True)
        )

    @property
    def num_cells(self) -> int:
        """Cells in all."""
        return math.prod(self.bins)

    def insert(
        self, elites: tuple[Individual, ...], newcomer: Individual, certainty: float
    ) -> tuple[tuple[Individual, ...], Insertion]:
        """The archive with a newcomer, and what became of it.

        Args:
            elites: the archive.
            newcomer: a member with a descriptor.
            certainty: least posterior probability that it is better than the cell's elite.
        """
        cell = self.cell(newcomer.descriptor)
        for place, elite in enumerate(elites):
            if self.cell(elite.descriptor) == cell:
                if not _is_better(newcomer, elite, certainty):
                    return elites, Insertion.REJECTED
                return (*elites[:place], newcomer, *elites[place + 1 :]), Insertion.IMPROVED
        return (*elites, newcomer), Insertion.NEW


def coverage(grid: Grid, elites: tuple[Individual, ...]) -> float:
    """Share of the cells that have an elite."""
    return len(elites) / grid.num_cells


def qd_score(elites: tuple[Individual, ...], offset: float = 0.0) -> float:
    """Sum of the elites' scores over a lowest possible score `offset` (Pugh et al., 2015)."""
    return math.fsum(elite.fitness.mean - offset for elite in elites)


def _is_better(newcomer: Individual, elite: Individual, certainty: float) -> bool:
    if newcomer.fitness.variance == 0 and elite.fitness.variance == 0:
        return newcomer.fitness.mean > elite.fitness.mean
    return newcomer.fitness.probability_above(elite.fitness) >= certainty
