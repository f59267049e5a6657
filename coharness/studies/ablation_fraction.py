"""Fractions of a two-level factorial: which runs to make when all combinations are too many, and what they then confuse.

A fraction 2^(k-p) varies k - p factors freely; each of the p others follows a product of those. The products that are constant
over the fraction are its defining words; the shortest has as many letters as the resolution: at III main effects are confused
with two-factor interactions, at IV only two-factor interactions with one another, at V neither (Box and Hunter, 1961). Of the
fractions of the wanted size the one of least aberration is taken, which has the fewest shortest words (Fries and Hunter, 1980).

    k = 3, p = 1: the third follows the product of the first two      + + +
    defining word ABC, resolution III                                 + - -
    A is confused with BC, B with AC, C with AB                       - + -
                                                                      - - +
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

Word = frozenset[int]
"""Factors, by their place, whose product is meant."""
MAX_FACTORS = 9
"""With more the search for generators takes longer than a planner may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fraction:
    """One fraction of a two-level factorial of `num_factors`."""

    num_factors: int
    generators: tuple[Word, ...]
    "For each factor that does not vary freely, the last ones, the free factors whose product it follows."

    @property
    def num_free(self) -> int:
        """Factors that vary freely."""
        return self.num_factors - len(self.generators)

    def runs(self) -> list[tuple[int, ...]]:
        """All runs as signs, one a factor; the first is all +1."""
        found = []
        for number in range(2**self.num_free):
            signs = [-1 if number >> (self.num_free - 1 - place) & 1 else 1 for place in range(self.num_free)]
            for word in self.generators:
                product = 1
                for place in word:
                    product *= signs[place]
                signs.append(product)
            found.append(tuple(signs))
        return found

    def defining_words(self) -> list[Word]:
        """All products of factors that are +1 in every run, without the empty one."""
        own = [word | {self.num_free + place} for place, word in enumerate(self.generators)]
        words: list[Word] = []
        for number in range(1, 2 ** len(own)):
            word: Word = frozenset()
            for place, other in enumerate(own):
                if number >> place & 1:
                    word = word ^ other
            words.append(word)
        return words

    @property
    def resolution(self) -> int | None:
        """Letters of the shortest defining word; None where all combinations are run and nothing is confused."""
        return min(map(len, self.defining_words()), default=None)

    def aliases(self, effect: Word, max_order: int = 2) -> list[Word]:
        """Other effects of at most `max_order` factors that no run tells from this one."""
        found = {effect ^ word for word in self.defining_words()}
        return sorted((word for word in found if len(word) <= max_order), key=lambda word: (len(word), sorted(word)))


def smallest_fraction(num_factors: int, resolution: int) -> Fraction:
    """The fraction with the fewest runs that has at least this resolution; all combinations where none has.

    Raises:
        ValueError: fewer than two factors or more than MAX_FACTORS, or a resolution below III.
    """
    if not 2 <= num_factors <= MAX_FACTORS:
        raise ValueError(f"a fraction is of 2 to {MAX_FACTORS} factors with two levels, got {num_factors}")
    if resolution < 3:
        raise ValueError(f"resolution {resolution} would confuse main effects with one another; ask for 3, 4 or 5")
    for num_free in range(1, num_factors):
        found = min(_fractions(num_factors, num_free), key=_aberration, default=None)
        if found is not None and (found.resolution or 0) >= resolution:
            return found
    return Fraction(num_factors=num_factors, generators=())


def _fractions(num_factors: int, num_free: int) -> Iterator[Fraction]:
    products = [frozenset(word) for size in range(2, num_free + 1) for word in combinations(range(num_free), size)]
    for generators in combinations(products, num_factors - num_free):
        yield Fraction(num_factors=num_factors, generators=generators)


def _aberration(fraction: Fraction) -> list[int]:
    """How many defining words have one letter, two, three, ...: fewer short ones is better."""
    lengths = [len(word) for word in fraction.defining_words()]
    return [lengths.count(length) for length in range(1, fraction.num_factors + 1)]
