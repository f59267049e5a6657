"""Executes a library without a model: criteria on measurements give scores, and scores give preferences and orders.

Invariants: a swapped pair gets the opposite verdict, exactly; verdicts on K candidates are transitive, since they come from one
score each; a candidate for which no criterion has a value is not judged at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.reward.library.criterion import Criterion, Floats
from coharness.reward.library.library import Library
from coharness.reward.library.preferences import Label
from coharness.reward.library.table import FeatureTable, Ints


def design(table: FeatureTable, criteria: Sequence[Criterion]) -> Floats:
    """Transformed values [C, J] without weights; NaN where a criterion does not apply or its value is missing."""
    columns = np.full((len(table.group), len(criteria)), np.nan)
    for index, criterion in enumerate(criteria):
        rows = table.applies(criterion.contexts)
        columns[rows, index] = criterion.transform(table.column(criterion.feature)[rows])
    return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a library says of the candidates of a table."""

    values: Floats
    "[C]; only differences within a group mean anything."
    judged: npt.NDArray[np.bool_]
    "Whether any criterion had a value [C]."
    tie: float
    "Difference up to which two candidates count as equal."

    def margin(self, first: Ints, second: Ints) -> Floats:
        """Score of the first less that of the second [P]; NaN where either is not judged."""
        known = self.judged[first] & self.judged[second]
        return np.where(known, self.values[first] - self.values[second], np.nan)

    def verdict(self, first: int, second: int) -> Label | None:
        """Which of two candidates is better; None where they are not judged."""
        margin = float(self.margin(np.array([first]), np.array([second]))[0])
        if np.isnan(margin):
            return None
        if abs(margin) <= self.tie:
            return Label.TIE
        return Label.A if margin > 0 else Label.B

    def order(self, rows: Sequence[int]) -> list[int]:
        """Rows from best to worst; of equal ones, the first stays first."""
        return sorted(rows, key=lambda row: -self.values[row])


def score(table: FeatureTable, library: Library, *, tie: float = 0.0) -> Scores:
    """Score all candidates.

    Raises:
        KeyError: a criterion counts a feature that was not measured.
    """
    criteria = [criterion for _, criterion in library.criteria]
    columns = design(table, criteria)
    weights = np.array([criterion.weight for criterion in criteria], dtype=np.float64)
    values = np.nan_to_num(columns, nan=0.0) @ weights
    return Scores(values=values, judged=np.asarray((~np.isnan(columns)).any(axis=1)), tie=tie)
