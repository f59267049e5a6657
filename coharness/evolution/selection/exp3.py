"""A bandit for options without order whose worth changes with time: EXP3 with weight sharing.

Probabilities mix exponential weights with a uniform share; at every reward a little of all weight is spread over all
options, so that one that was bad early can come back (EXP3.S; Auer et al., 2002; for categorical settings of a population:
Parker-Holder et al., 2021).
"""

import math
from collections.abc import Sequence


def option_probabilities(
    num_options: int, rewards: Sequence[tuple[int, float]], *, uniform: float = 0.1, sharing: float = 0.02
) -> list[float]:
    """Probability of drawing each option next.

    Args:
        num_options: how many there are.
        rewards: (option, reward in [0, 1]), oldest first.
        uniform: share of the probability that is spread evenly.
        sharing: share of all weight that a reward spreads evenly.

    Raises:
        ValueError: a reward is outside [0, 1], or names no option.
    """
    log_weights = [0.0] * num_options
    for option, reward in rewards:
        if not (0 <= option < num_options and 0.0 <= reward <= 1.0):
            raise ValueError(
                f"reward: got {reward} of option {option}, expected [0, 1] of one of {num_options} options"
            )
        probability = _mix(log_weights, uniform)[option]
        log_weights[option] += uniform * (reward / probability) / num_options
        top = max(log_weights)
        total = math.fsum(math.exp(w - top) for w in log_weights)
        # Adding to every weight the same share of the mean weight.
        log_weights = [math.log((1 - sharing) * math.exp(w - top) + sharing * total / num_options) for w in log_weights]
    return _mix(log_weights, uniform)


def _mix(log_weights: list[float], uniform: float) -> list[float]:
    top = max(log_weights)
    weights = [math.exp(w - top) for w in log_weights]
    total = math.fsum(weights)
    return [(1 - uniform) * weight / total + uniform / len(weights) for weight in weights]
