"""Difficulty taken out of the comparison: members that met different tasks, judged as if all had met the same.

    logit P(member i solves item j) = theta_i - b_j        b_j ~ N(0, spread²)

(Rasch, 1960), fitted by Newton's method with a ridge on both. A member that met only hard items is not punished for it. Where all
members meet the same items it orders them as their success rates do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEffects:
    """A fitted model."""

    ability: Array
    "theta, [members]; higher is better."
    error: Array
    "Posterior standard deviation of theta, [members]."
    difficulty: Array
    "b, [items]; higher is harder."

    def success(self, member: int) -> float:
        """Expected success of a member over all items that anybody met, each counted once."""
        return float((1 / (1 + np.exp(self.difficulty - self.ability[member]))).mean())


def fit_item_effects(
    outcomes: Sequence[tuple[int, int, float, float]],
    num_members: int,
    num_items: int,
    *,
    ability_spread: float = 3.0,
    difficulty_spread: float = 1.5,
    max_steps: int = 50,
) -> ItemEffects:
    """Fit abilities and difficulties.

    Args:
        outcomes: (member, item, successes, failures), counts may be fractions.
        num_members: members, numbered from 0.
        num_items: items, numbered from 0.
        ability_spread: prior standard deviation of abilities, in log-odds.
        difficulty_spread: prior standard deviation of difficulties, in log-odds.
        max_steps: Newton steps; a handful is enough.

    Raises:
        ValueError: an outcome names nobody or nothing, or has a negative count.
    """
    successes, trials = np.zeros((num_members, num_items)), np.zeros((num_members, num_items))
    for member, item, won, lost in outcomes:
        if not (0 <= member < num_members and 0 <= item < num_items and won >= 0 and lost >= 0):
            raise ValueError(
                f"outcome: got {won} won and {lost} lost by member {member} on item {item}, "
                f"expected counts of 0 or more of {num_members} members on {num_items} items"
            )
        successes[member, item] += won
        trials[member, item] += won + lost
    ridge = np.concatenate([np.full(num_members, ability_spread**-2), np.full(num_items, difficulty_spread**-2)])
    parameters = np.zeros(num_members + num_items)
    hessian = np.diag(ridge)
    for _ in range(max_steps):
        theta, b = parameters[:num_members], parameters[num_members:]
        p = 1 / (1 + np.exp(b[None] - theta[:, None]))  # [members, items]
        residual, weight = successes - trials * p, trials * p * (1 - p)
        gradient = np.concatenate([residual.sum(axis=1), -residual.sum(axis=0)]) - ridge * parameters
        hessian = np.diag(np.concatenate([weight.sum(axis=1), weight.sum(axis=0)]) + ridge)
        hessian[:num_members, num_members:] = -weight
        hessian[num_members:, :num_members] = -weight.T
        step = np.linalg.solve(hessian, gradient)
        # The log posterior is concave; a bounded step keeps the first ones from overshooting where all answers are right.
        largest = float(np.abs(step).max())
        parameters = parameters + step * min(1.0, 2.0 / largest if largest > 0 else 1.0)
        if largest < 1e-10:
            break
    variance = np.diag(np.linalg.inv(hessian))
    return ItemEffects(
        ability=parameters[:num_members], error=np.sqrt(variance[:num_members]), difficulty=parameters[num_members:]
    )
