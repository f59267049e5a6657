"""The built-in families: six small problems on words, hard enough that a 1 M parameter model has something to learn.

Six families, eight levels; a word of level k has 2 + 2k characters. Which answer format helps differs by family: a running
trace turns counting, parity, digit sum and maximum into single steps, while reversing becomes a copy when the answer is
written mirrored; no format helps sorting. Plain Python alone, because the
core draws tens of thousands of these.

Invariants: a task is a pure function of (family, level, seed); a level with few tasks is numbered, so that the seed modulo
their number names each exactly once; every level has at least `MIN_TASKS_TO_SEAL` distinct tasks.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from coharness.records.errors import TaskError
from coharness.records.ids import TaskId
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.formats import CUED_FORMATS, Solution, render_references

MAX_LEVEL = 8
_MAX_COUNTED = 100_000
"""Cells with more tasks than this are not numbered; nobody enumerates them."""
_STRIDE = 7_368_787
"""A prime that divides no cell's size: neighbouring seeds give words that look nothing alike."""
_LAST_DIGIT = "0123456789" * 20
"""The last digit of a small number, by index."""
_LETTERS = str.maketrans("0123456789", "abcdefghij")
_EXACT = VerifierSpec(kind=VerifierKind.EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    name: str
    size: Callable[[int], int]
    "Number of tasks with words of n characters."
    question: Callable[[int, int], tuple[str, str, str]]
    "(index below size, n) -> question, the word it is about, and what is asked of it."
    solve: Callable[[str, str], tuple[str, str, str]]
    "(word, asked) -> answer, trace, trace from the right end."


def _digits(index: int, n: int) -> str:
    return str(index).zfill(n)


def _in_base(index: int, base: int, n: int) -> str:
    letters = []
    for _ in range(n):
        index, digit = divmod(index, base)
        letters.append("abcdef"[digit])
    return "".join(letters)


def _ask_reverse(index: int, n: int) -> tuple[str, str, str]:
    word = _digits(index, n).translate(_LETTERS)
    return f"rev {word}", word, ""


def _solve_reverse(word: str, _: str) -> tuple[str, str, str]:
    return word[::-1], word, word[::-1]


def _ask_sort(index: int, n: int) -> tuple[str, str, str]:
    word = _digits(index, n)
    return f"sort {word}", word, ""


def _solve_sort(word: str, _: str) -> tuple[str, str, str]:
    return "".join(sorted(word)), word, word[::-1]


def _ask_count(index: int, n: int) -> tuple[str, str, str]:
    index, target = divmod(index, 3)
    word, asked = _in_base(index, 6, n), "abc"[target]
    return f"cnt {asked} {word}", word, asked


def _solve_count(word: str, asked: str) -> tuple[str, str, str]:
    def run(characters: str) -> str:
        counts = accumulate(map(asked.__eq__, characters), add)
        return "".join([character + _LAST_DIGIT[count] for character, count in zip(characters, counts, strict=True)])

    return _LAST_DIGIT[word.count(asked)], run(word), run(word[::-1])


def _running(fold: Callable[[int, int], int], show: str) -> Callable[[str, str], tuple[str, str, str]]:
    """A solver whose state is the fold of the digits so far, each state written as the character `show[state]`."""

    def run(word: str) -> str:
        return "".join([show[state] for state in accumulate(map(int, word), fold)])

    def solve(word: str, _: str) -> tuple[str, str, str]:
        trace = run(word)
        return trace[-1], trace, run(word[::-1])

    return solve


def _ask_digits(prompt: str) -> Callable[[int, int], tuple[str, str, str]]:
    def ask(index: int, n: int) -> tuple[str, str, str]:
        word = _digits(index, n)
        return f"{prompt} {word}", word, ""

    return ask


def _ten_to(n: int) -> int:
    return int(10**n)


def _count_size(n: int) -> int:
    return int(3 * 6**n)


_FAMILIES: dict[str, _Family] = {
    family.name: family
    for family in (
        _Family(name="reverse", size=_ten_to, question=_ask_reverse, solve=_solve_reverse),
        _Family(name="sort", size=_ten_to, question=_ask_sort, solve=_solve_sort),
        _Family(name="count", size=_count_size, question=_ask_count, solve=_solve_count),
        # The sum of the digits is odd exactly where the number of odd digits is.
        _Family(name="parity", size=_ten_to, question=_ask_digits("par"), solve=_running(add, "01" * 100)),
        _Family(name="digit_sum", size=_ten_to, question=_ask_digits("dsum"), solve=_running(add, _LAST_DIGIT)),
        _Family(name="maximum", size=_ten_to, question=_ask_digits("max"), solve=_running(max, _LAST_DIGIT)),
    )
}

FAMILY_NAMES = tuple(_FAMILIES)
"""The built-in families, in the order they are listed."""


def word_length(level: int) -> int:
    """Characters of a word of `level`."""
    return 2 + 2 * level


def _counted(family: _Family, level: int) -> int | None:
    size = family.size(word_length(level))
    return size if size <= _MAX_COUNTED else None


class BuiltinSource:
    """The built-in families as a task source."""

    def __init__(self, families: Sequence[str] | None = None, max_level: int = MAX_LEVEL) -> None:
        """Offer `families` (all where None) at levels 1 to `max_level`.

        Raises:
            TaskError: a family is unknown, named twice, or there is none; or `max_level` is not in 1..8.
        """
        names = FAMILY_NAMES if families is None else tuple(families)
        unknown = [name for name in names if name not in _FAMILIES]
        if unknown or not names or len(set(names)) < len(names):
            raise TaskError(
                f"built-in families are {', '.join(FAMILY_NAMES)}, each named once, at least one; got {list(names)}"
            )
        if not 1 <= max_level <= MAX_LEVEL:
            raise TaskError(f"built-in families have levels 1 to {MAX_LEVEL}, got max_level={max_level}")
        self._max_level = max_level
        # Names alone are kept: the families' functions do not pickle.
        self._names = frozenset(names)
        self._specs = tuple(self._spec(_FAMILIES[name]) for name in names)

    def _spec(self, family: _Family) -> FamilySpec:
        # References of one level and format are all equally long, and a longer word has a longer one.
        longest = self.make(family.name, self._max_level, 0).references.values()
        return FamilySpec(
            name=family.name,
            num_levels=self._max_level,
            formats=CUED_FORMATS,
            num_tasks=tuple(_counted(family, level) for level in range(1, self._max_level + 1)),
            max_answer_chars=max(map(len, longest)),
        )

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The families on offer."""
        return self._specs

    def make(self, family: str, level: int, seed: int) -> Task:
        """The task of this recipe.

        Raises:
            TaskError: the family is not on offer, or the level is outside its levels.
        """
        if family not in self._names:
            offered = ", ".join(spec.name for spec in self._specs)
            raise TaskError(f"no built-in family {family!r} here; on offer: {offered}")
        if not 1 <= level <= self._max_level:
            raise TaskError(f"{family} has levels 1 to {self._max_level}, got level {level}")
        spec, n = _FAMILIES[family], word_length(level)
        size = spec.size(n)
        if size <= _MAX_COUNTED:
            index = seed % size * _STRIDE % size
        else:
            digest = hashlib.blake2b(f"{family}\x1f{level}\x1f{seed}".encode(), digest_size=16).digest()
            index = int.from_bytes(digest, "big") % size
        question, word, asked = spec.question(index, n)
        answer, trace, backward_trace = spec.solve(word, asked)
        solution = Solution(answer=answer, subject=word, trace=trace, backward_trace=backward_trace)
        return Task(
            id=TaskId(task_id(family, level, question, answer)),
            family=family,
            level=level,
            seed=seed,
            question=question,
            answer=answer,
            verifier=_EXACT,
            references=render_references(CUED_FORMATS, solution),
        )
