"""Multipliers of soft constraints, moved by what the constraints cost: maximise E[r - Σ λ c] with E[c] <= d for each.

λ follows a PID controller on the excess ĉ - d, after Stooke, Achiam and Abbeel (2020); with kp = kd = 0 it is projected
gradient ascent on the dual. The mean cost may be replaced by its upper confidence bound, so that a few lucky samples do not
release a constraint. The state is a value: one observation makes the next.

    start at .5, ki .5, limit .1; costs .3, .2, .05 -> .60, .65, .625
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PidGains:
    """How a multiplier answers to excess cost. Raises ValueError on a negative gain or an empty range."""

    limit: float
    "Mean cost that is allowed, d."
    ki: float = 0.05
    kp: float = 0.0
    kd: float = 0.0
    "Acts on rising cost alone: falling cost is no reason to release a constraint early."
    max_multiplier: float = 10.0
    confidence_z: float = 0.0
    "Standard errors added to the mean cost; 1.64 for a one-sided 95 % bound."

    def __post_init__(self) -> None:
        for name in ("limit", "ki", "kp", "kd", "confidence_z"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"PidGains.{name} is {value!r}, expected a finite number of 0 or more")
        if not self.max_multiplier > 0:
            raise ValueError(f"PidGains.max_multiplier is {self.max_multiplier!r}, expected more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplier:
    """A constraint's multiplier after some observations."""

    gains: PidGains
    integral: float = 0.0
    "The part of the multiplier that remembers."
    value: float = 0.0
    "λ as it is applied, in [0, max_multiplier]."
    last_cost: float | None = None

    @classmethod
    def start(cls, gains: PidGains, value: float = 0.0) -> "Multiplier":
        """A multiplier before any observation."""
        return cls(gains=gains, integral=value, value=value)

    def observed(self, costs: Sequence[float]) -> "Multiplier":
        """The multiplier after a batch of costs, each in [0, 1] and each measured: failed parts are left out by the caller.

        An empty batch changes nothing: what was not measured neither tightens nor releases.

        Raises:
            ValueError: a cost outside [0, 1].
        """
        if not costs:
            return self
        if not all(0.0 <= cost <= 1.0 for cost in costs):
            raise ValueError(
                f"got costs from {min(costs)} to {max(costs)}, expected [0, 1]; leave failed parts out of the batch"
            )
        gains, n = self.gains, len(costs)
        mean = math.fsum(costs) / n
        spread = math.sqrt(math.fsum((c - mean) ** 2 for c in costs) / max(n - 1, 1) / n)
        cost = mean + gains.confidence_z * spread
        excess = cost - gains.limit
        integral = min(max(self.integral + gains.ki * excess, 0.0), gains.max_multiplier)
        rise = 0.0 if self.last_cost is None else max(cost - self.last_cost, 0.0)
        value = min(max(integral + gains.kp * excess + gains.kd * rise, 0.0), gains.max_multiplier)
        return replace(self, integral=integral, value=value, last_cost=cost)
