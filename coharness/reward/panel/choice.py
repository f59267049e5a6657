"""Which way of counting a panel's verdicts to trust: held-out anchors choose, and the choice is printed with its evidence."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.reward.panel.dawid_skene import fit_dawid_skene
from coharness.reward.panel.log_odds import anchored_reliabilities, fit_vote
from coharness.reward.panel.votes import Anchors, Verdicts, accuracy, check_verdicts

Count = Callable[[Verdicts, Anchors], npt.NDArray[np.float64]]
"""(verdicts [J, I], anchors) -> decisions [I], positive for the first candidate."""


def by_vote(verdicts: Verdicts, anchors: Anchors) -> npt.NDArray[np.float64]:
    """The anchored log-odds vote."""
    return fit_vote(verdicts, anchors).log_odds(verdicts)


def by_best(verdicts: Verdicts, anchors: Anchors) -> npt.NDArray[np.float64]:
    """The judge that is best on the anchors, alone; where it has no verdict, the next best."""
    order = np.argsort(-anchored_reliabilities(verdicts, anchors), kind="stable")
    decisions = np.zeros(verdicts.shape[1])
    for judge in order:
        decisions = np.where(decisions == 0, verdicts[judge], decisions)
    return decisions


def by_dawid_skene(verdicts: Verdicts, anchors: Anchors) -> npt.NDArray[np.float64]:
    """Dawid and Skene's model with the anchors held fixed; 0 everywhere where they do not hold it in place."""
    fitted = fit_dawid_skene(verdicts, anchors)
    return fitted.probability - 0.5 if fitted.identifiable else np.zeros(verdicts.shape[1])


COUNTS: Mapping[str, Count] = {"vote": by_vote, "best": by_best, "dawid_skene": by_dawid_skene}
"""Ways of counting; the first is preferred among equals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The way that was chosen."""

    name: str
    held_out: Mapping[str, float]
    "Accuracy of each way on anchors that it was not fitted on."
    decisions: npt.NDArray[np.float64]
    "Of all items, the chosen way fitted on all anchors [I]."


def choose_count(
    verdicts: npt.ArrayLike,
    anchors: Anchors,
    rng: np.random.Generator,
    *,
    num_folds: int = 10,
    margin: float | None = None,
) -> Choice:
    """Choose by cross-validation on the anchors; another way than the vote must beat it by `margin`.

    The margin is a standard error of an accuracy on so many anchors where it is left out: few anchors cannot tell ways apart, and
    what wins by less wins by luck.

    Raises:
        ValueError: fewer than 4 anchors.
    """
    table = check_verdicts(verdicts)
    if len(anchors) < 4:
        raise ValueError(
            f"got {len(anchors)} anchors, expected at least 4 to choose by; settle more, or use the vote as it is"
        )
    folds = rng.permutation(len(anchors)) % min(num_folds, len(anchors) // 2)
    held_out = {}
    for name, count in COUNTS.items():
        made = np.zeros(len(anchors))
        for fold in np.unique(folds):
            held = folds == fold
            made[held] = count(table, anchors.subset(~held))[anchors.items[held]]
        held_out[name] = accuracy(made, anchors.labels)
    if margin is None:
        margin = math.sqrt(0.25 / len(anchors))
    first = next(iter(COUNTS))
    best = max(held_out, key=lambda name: held_out[name] + (margin if name == first else 0.0))
    return Choice(name=best, held_out=held_out, decisions=COUNTS[best](table, anchors))
