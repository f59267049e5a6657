"""Dominance among points in [0, 1]^D, all dimensions to be maximised: fronts, hypervolume, and a score of both."""

from collections.abc import Sequence

Point = tuple[float, ...]


def dominates(a: Point, b: Point) -> bool:
    """Whether `a` is nowhere worse than `b` and somewhere better."""
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


def fronts(points: Sequence[Point]) -> list[int]:
    """The non-dominated front of each point: 0 for those that nothing dominates, then 1, and so on. Deb et al. (2002)."""
    rank = [-1] * len(points)
    left = set(range(len(points)))
    front = 0
    while left:
        best = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in best:
            rank[i] = front
        left -= best
        front += 1
    return rank


def hypervolume(points: Sequence[Point]) -> float:
    """The volume of [0, 1]^D that some point dominates, with the origin as reference; exact, by recursion on limit sets.

    Source: While, Bradstreet and Barone (2012). Cheap for a group: tens of points in a few dimensions.
    """
    ordered = sorted(set(points), reverse=True)
    total = 0.0
    for index, point in enumerate(ordered):
        volume = 1.0
        for x in point:
            volume *= x
        limited = [tuple(min(x, y) for x, y in zip(point, other, strict=True)) for other in ordered[index + 1 :]]
        total += volume - (hypervolume(_non_dominated(limited)) if limited else 0.0)
    return total


def _non_dominated(points: Sequence[Point]) -> list[Point]:
    unique = list(dict.fromkeys(points))
    return [p for p in unique if not any(dominates(q, p) for q in unique)]


def contributions(points: Sequence[Point]) -> list[float]:
    """The volume that each point alone dominates; 0 for duplicates and dominated points."""
    whole = hypervolume(_non_dominated(points))
    return [max(0.0, whole - hypervolume(_non_dominated([*points[:i], *points[i + 1 :]]))) for i in range(len(points))]


def front_scores(points: Sequence[Point]) -> list[float]:
    """A score in (0, 1] for each point: its front decides the slice, the volume that it alone dominates the place in it."""
    if not points:
        return []
    ranks = fronts(points)
    depth = max(ranks) + 1
    scores = [0.0] * len(points)
    for front in range(depth):
        members = [i for i, rank in enumerate(ranks) if rank == front]
        alone = contributions([points[i] for i in members])
        most = max(alone)
        for i, volume in zip(members, alone, strict=True):
            place = 0.5 if most <= 0.0 else 0.5 + 0.5 * volume / most
            scores[i] = (depth - front - 1 + place) / depth
    return scores
