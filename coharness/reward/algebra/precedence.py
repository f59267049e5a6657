"""Orders of precedence: what may never be outweighed by what stands below it."""

from collections.abc import Sequence


def verifier_first(passed: bool, judge: float, *, partial: float | None = None, cap: float = 0.9) -> float:
    """A verifier's verdict decides the half of [0, 1], a judge the place inside it.

    Passed attempts lie in [.5, 1] at .5 + .5 J. Failed ones lie in [0, .5 cap] at .5 min(x, cap), where x is J, or the mean
    of J and the share of tests that passed. With cap < 1 no judge lifts a failed attempt to where the worst passed one is.

    Raises:
        ValueError: a value outside [0, 1], or a cap outside (0, 1).
    """
    for name, value in (("judge", judge), ("partial", 0.0 if partial is None else partial)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is {value!r}, expected a number in [0, 1]")
    if not 0.0 < cap < 1.0:
        raise ValueError(
            f"cap is {cap!r}, expected a number in (0, 1), or a failed attempt could tie with a passed one"
        )
    if passed:
        return 0.5 + 0.5 * judge
    credit = judge if partial is None else 0.5 * (judge + partial)
    return 0.5 * min(credit, cap)


def pack(values: Sequence[float], levels: Sequence[int]) -> float:
    """Values in order of precedence as one number in [0, 1]: a step up in an earlier one beats anything in the later ones.

    Each value but the last is cut into `levels[i]` steps, since a continuous first value would leave the rest no say. Order
    is that of the tuples of steps, the last value as it is.

    Args:
        values: in [0, 1], the most important first, N >= 1.
        levels: steps of each value but the last, N - 1 whole numbers >= 2.

    Raises:
        ValueError: values outside [0, 1], or steps that do not fit.
    """
    if len(levels) != len(values) - 1 or any(n < 2 for n in levels):
        raise ValueError(
            f"got {len(values)} values and levels {list(levels)}, expected one number of 2 or more for each but the last"
        )
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError(f"got values {list(values)}, expected numbers in [0, 1]")
    packed = values[-1]
    for value, steps in zip(reversed(values[:-1]), reversed(levels), strict=True):
        step = min(int(value * steps), steps - 1)
        # The lower part is held just under one step, so that a full score below never equals a step above.
        packed = (step + packed * (1.0 - 1e-9)) / steps
    return packed
