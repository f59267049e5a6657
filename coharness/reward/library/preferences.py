"""Preferences as people or judges give them, and the exact figures that they are held against.

Failures are no preferences: a judgment that failed is counted beside the figure, never inside it as a tie or a loss.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from coharness.records.errors import TaskError


class Label(StrEnum):
    """Which of two is better."""

    A = "A"
    "The first."
    B = "B"
    "The second."
    TIE = "tie"
    "Neither."

    @property
    def swapped(self) -> "Label":
        """The label of the same pair the other way round."""
        return {Label.A: Label.B, Label.B: Label.A, Label.TIE: Label.TIE}[self]

    @property
    def target(self) -> float:
        """1, 0 or .5."""
        return {Label.A: 1.0, Label.B: 0.0, Label.TIE: 0.5}[self]

    @classmethod
    def of(cls, text: str) -> "Label":
        """Read a label, whatever its case and the space around it.

        Raises:
            ValueError: it is none.
        """
        label = {"a": cls.A, "b": cls.B, "tie": cls.TIE}.get(text.strip().lower())
        if label is None:
            raise ValueError(f"label: got {text!r:.40}, expected A, B or tie")
        return label


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """One pair of candidates of one group."""

    name: str
    "Of the pair."
    group: str
    "The task that both answer, and whose pairs are one unit of every statistic."
    first: str
    "Name of the candidate A."
    second: str
    label: Label
    strength: float | None = None
    "How much better the preferred one is, in the unit of the data; None where it was not asked."
    annotator: str = ""

    @property
    def swapped(self) -> "Preference":
        """The same pair the other way round; its name says so."""
        return replace(self, name=f"{self.name}_swap", first=self.second, second=self.first, label=self.label.swapped)


def with_swaps(preferences: Sequence[Preference]) -> list[Preference]:
    """All pairs, each followed by itself the other way round."""
    return [either for one in preferences for either in (one, one.swapped)]


# Where labels come from ----------------------------------------------------------------------------------------------

_VOTES = {"leftvote": Label.A, "rightvote": Label.B}


def label_of_vote(vote: str) -> Label:
    """The label of a vote such as `leftvote`; whatever is neither left nor right is a tie, as the published loop has it."""
    return _VOTES.get(vote.strip().lower(), Label.TIE)


def label_of_ranking(ranking: str, comparison: str) -> Label:
    """The label of a comparison such as `AvsC` under a ranking of two such as `C>A` or `A=C`.

    Raises:
        TaskError: one of them has another shape, or they speak of different candidates.
    """
    left, versus, right = comparison.partition("vs")
    sign = ">" if ">" in ranking else "="
    better, _, worse = ranking.replace(" ", "").partition(sign)
    if not versus or sorted((better, worse)) != sorted((left, right)) or left == right:
        raise TaskError(
            f"got the ranking {ranking!r:.40} for the comparison {comparison!r:.40}, expected such as 'B>A' for 'AvsB'"
        )
    if sign == "=":
        return Label.TIE
    return Label.A if better == left else Label.B


# Figures -------------------------------------------------------------------------------------------------------------


def agrees(said: str, truth: str) -> bool:
    """Whether two labels are the same, whatever their case and the space around them; a tie is a label of its own."""
    return said.strip().lower() == truth.strip().lower()


def num_pairs_of(k: int) -> int:
    """Pairs of K candidates, for K of 2, 3 or 4.

    Raises:
        ValueError: another K; benchmarks of this kind have no others.
    """
    if k not in (2, 3, 4):
        raise ValueError(f"k: got {k!r}, expected 2, 3 or 4 candidates")
    return k * (k - 1) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAccuracy:
    """How many groups were judged right in every pair, of how many; exact counts."""

    correct: int
    groups: int
    failed: int = 0
    "Groups with a pair whose judgment failed: part of `groups`, never of `correct`."

    @property
    def share(self) -> Fraction:
        """Exact share, 0 of no group."""
        return Fraction(self.correct, self.groups) if self.groups else Fraction(0)


def group_accuracy(right: Mapping[str, Sequence[bool | None]], k: int) -> GroupAccuracy:
    """K-way accuracy: a group counts where all of its pairs are right.

    Args:
        right: group -> whether each of its pairs was judged right; None where the judgment failed.
        k: candidates of a group.

    Raises:
        ValueError: K is not 2, 3 or 4, or a group has not exactly K(K-1)/2 pairs; the message names it.
    """
    expected = num_pairs_of(k)
    for group, pairs in right.items():
        if len(pairs) != expected:
            raise ValueError(f"group {group!r:.60}: got {len(pairs)} pairs, expected {expected} for {k} candidates; pairs "
                             "that failed "
                             "stay in their group as None")  # fmt: skip
    return GroupAccuracy(
        correct=sum(all(pair is True for pair in pairs) for pairs in right.values()),
        groups=len(right),
        failed=sum(any(pair is None for pair in pairs) for pairs in right.values()),
    )


def chance(k: int, judge: str) -> Fraction:
    """Group accuracy by chance.

    Args:
        k: candidates of a group, 2, 3 or 4.
        judge: `coin` decides each pair by itself, `order` draws an order of all, `label` draws A, B or tie for each pair.
    """
    pairs = num_pairs_of(k)
    match judge:
        case "coin":
            return Fraction(1, 2**pairs)
        case "order":
            return Fraction(1, {2: 2, 3: 6, 4: 24}[k])
        case "label":
            return Fraction(1, 3**pairs)
    raise ValueError(f"judge: got {judge!r}, expected coin, order or label")


def published_gate(best: int, now: int, total: int, margin: Fraction = Fraction(3, 40)) -> bool:
    """Whether the published loop keeps a change: not below the best so far by more than a margin. In exact arithmetic.

    It is the control that `gate` is measured against: at 40 pairs its margin is one standard error, and it keeps two of three
    changes that cost five points.
    """
    return Fraction(now, total) >= Fraction(best, total) - margin


def mean_of(values: Iterable[float | Fraction]) -> Fraction:
    """Plain mean, exact for fractions and decimals that are given as such.

    Raises:
        ValueError: there is no value.
    """
    listed = [value if isinstance(value, Fraction) else Fraction(str(value)) for value in values]
    if not listed:
        raise ValueError("mean of no value")
    return sum(listed, Fraction(0)) / len(listed)
