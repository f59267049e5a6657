"""Rewards along an episode: shaping that cannot change what is best, and process rewards that cannot be farmed."""

from collections.abc import Sequence
from itertools import pairwise


def shaping_terms(potentials: Sequence[float], discount: float) -> list[float]:
    """Potential-based terms F_t = γ Φ(s_{t+1}) - Φ(s_t), one a transition; they leave every optimal policy optimal.

    `potentials` are Φ of all states of an episode in order [T + 1]. Their discounted sum is γ^T Φ_T - Φ_0, so a detour earns
    nothing; set the last potential to 0 where the end is terminal, else the end's potential is paid out as reward. Source:
    Ng, Harada and Russell (1999).

    Raises:
        ValueError: fewer than two potentials, or a discount outside (0, 1].
    """
    if len(potentials) < 2:
        raise ValueError(f"got {len(potentials)} potentials, expected one a state and at least 2 states")
    if not 0.0 < discount <= 1.0:
        raise ValueError(f"the discount is {discount!r}, expected a number in (0, 1]")
    return [discount * after - before for before, after in pairwise(potentials)]


def discounted(rewards: Sequence[float], discount: float) -> float:
    """Σ γ^t r_t."""
    total = 0.0
    for reward in reversed(rewards):
        total = reward + discount * total
    return total


def least_step(steps: Sequence[float]) -> float:
    """The value of a chain of steps as its least step reward.

    A sum rewards writing more steps, and a policy learns to; a minimum cannot be raised by adding any. Source: Cheng et al.
    (2025), min-form credit assignment.

    Raises:
        ValueError: no step.
    """
    if not steps:
        raise ValueError("got no step rewards, expected at least one; an episode without steps has no process reward")
    return min(steps)


def future_least(steps: Sequence[float]) -> list[float]:
    """For each step the least reward from it on [T]: the credit that a step is still worth."""
    credit: list[float] = []
    least = float("inf")
    for step in reversed(steps):
        least = min(least, step)
        credit.append(least)
    return credit[::-1]
