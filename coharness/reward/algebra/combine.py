"""Combining values in [0, 1] into one: means that differ in how much one low value counts.

    arithmetic  (.9, .9, .1) -> .633        a dimension can be bought off by the others
    power, -4   (.9, .9, .1) -> .1316       it cannot
    soft-min    (.9, .9, .1) -> .2098 at temperature .1

Every function takes values [N] in [0, 1] and weights [N] > 0, which are normalised to sum to one; N >= 1.
"""

import math
from collections.abc import Sequence

EPSILON = 1e-3
"""Values are raised to this before a power or a logarithm, so that one zero leaves a gradient between the others."""


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Σ wᵢ xᵢ."""
    return math.fsum(w * x for w, x in zip(_shares(values, weights), values, strict=True))


def power_mean(values: Sequence[float], weights: Sequence[float], exponent: float, epsilon: float = EPSILON) -> float:
    """(Σ wᵢ xᵢ^p)^(1/p): 1 is the arithmetic mean, 0 the geometric, -1 the harmonic, -inf the least value.

    Raises:
        ValueError: no value, weights that are not positive, or an exponent that is NaN.
    """
    shares = _shares(values, weights)
    if exponent == 1.0:
        return weighted_mean(values, weights)
    if math.isnan(exponent):
        raise ValueError("the exponent of a power mean is NaN, expected a number; -4 punishes one low value hard")
    clipped = [max(x, epsilon) for x in values]
    if math.isinf(exponent):
        return max(clipped) if exponent > 0 else min(clipped)
    logs = [math.log(x) for x in clipped]
    if abs(exponent) < 1e-6:  # nearer to 0 the division below would magnify rounding
        return math.exp(math.fsum(w * log for w, log in zip(shares, logs, strict=True)))
    # In logs, shifted by the largest term: a steep exponent neither overflows nor underflows.
    terms = [exponent * log for log in logs]
    peak = max(terms)
    total = math.fsum(w * math.exp(term - peak) for w, term in zip(shares, terms, strict=True))
    # Rounding may push a mean of equal values past them by an ulp.
    return min(max(math.exp((peak + math.log(total)) / exponent), min(clipped)), max(clipped))


def soft_min(values: Sequence[float], weights: Sequence[float], temperature: float) -> float:
    """-t ln Σ wᵢ exp(-xᵢ / t): the least value as t -> 0, the arithmetic mean as t grows.

    Raises:
        ValueError: no value, weights that are not positive, or a temperature that is not positive.
    """
    shares = _shares(values, weights)
    if not temperature > 0:
        raise ValueError(f"the temperature of a soft-min is {temperature!r}, expected more than 0; .1 is a good start")
    least = min(values)
    total = math.fsum(w * math.exp((least - x) / temperature) for w, x in zip(shares, values, strict=True))
    return min(max(least - temperature * math.log(total), least), max(values))


def _shares(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    if len(values) != len(weights) or not values:
        raise ValueError(f"got {len(values)} values and {len(weights)} weights, expected as many, and at least one")
    if not all(w > 0 and math.isfinite(w) for w in weights):
        raise ValueError(f"got weights {list(weights)}, expected finite numbers above 0; leave a part out instead")
    total = math.fsum(weights)
    return [w / total for w in weights]
