"""How far a population is drifting towards quick members, and away from slow ones, whatever they are worth.

An asynchronous population gives more turns to whoever reports more often (Scott & De Jong, 2015). `turns` says how uneven
turns were and `survival` whether quick members left more descendants; the correction itself is
`selection.rules.Ruled.equal_turns`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBias:
    """What the meter reads."""

    correlation: float
    "Kendall's tau of the time between reports with the number of children: below 0, quick members had more."
    p_value: float
    "Two-sided, of no association; 1 where there is nothing to tell."
    unevenness: float
    "Turns of the member that had most, for each turn of the one that had fewest."


def meter(durations_s: Mapping[str, float], num_turns: Mapping[str, int], parents: Sequence[str]) -> TimeBias:
    """Read the meter.

    Args:
        durations_s: member -> mean seconds between its reports, for all members that ever reported.
        num_turns: member -> turns it had.
        parents: for every birth by copy, whom it copied.

    Raises:
        ValueError: no member reported.
    """
    if not durations_s:
        raise ValueError("durations: got no member, expected all that ever reported")
    names = sorted(durations_s)
    children = [sum(parent == name for parent in parents) for name in names]
    times = [durations_s[name] for name in names]
    turns = [num_turns.get(name, 0) for name in names]
    unevenness = max(turns) / max(min(turns), 1)
    if len(set(times)) < 2 or len(set(children)) < 2:
        return TimeBias(correlation=0.0, p_value=1.0, unevenness=unevenness)
    # Imported here, since it takes longer to load than all the rest, and is needed once a search.
    from scipy import stats

    tau, p_value = stats.kendalltau(times, children)
    return TimeBias(correlation=float(tau), p_value=float(p_value), unevenness=unevenness)
