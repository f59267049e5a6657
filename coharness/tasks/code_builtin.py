"""Easy functions to write, made from a seed: what a fresh clone can practise code on without any file.

    level 1   one step from number to number             plus 7
    level 2   two steps                                  times 3, then modulo 10
    level 3   the numbers of a list that meet a condition, counted, summed, sorted, ...
    level 4   the same, with a step applied to each number first kept

The question is the beginning of a function with its docstring and two examples. The inputs of the hidden test follow from the
function as the examples do, and stand in the verifier's parameters alone. Invariants: a task is a pure function of (family,
level, seed); seeds number the functions of a level, and no function belongs to two tasks; nothing is executed here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from coharness.config.sandbox import BUILTIN_LEVELS, CodeTasks
from coharness.records.errors import TaskError
from coharness.records.ids import derive_seed
from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.code_pieces import CONDITIONS, FOLDS, NUMBERS, Fold, Piece
from coharness.tasks.formats import CODE_FORMATS, Solution, render_references

_SHOWN = 2
"""Examples in the docstring; the test holds none of them."""
_HIDDEN = 6
_DRAWS = 20
_MAX_COUNTED = 100_000
"""Levels with more functions than this are not counted; nobody enumerates them."""
_STRIDE = 7_368_787
"""A prime that divides no level's size: neighbouring seeds give functions that look nothing alike."""
_Option = tuple[Piece, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """A function: what it is called, says and returns."""

    entry: str
    takes: str
    returns: str
    says: str
    code: str
    bounds: tuple[int, ...]
    "Constants, near which inputs tell right from nearly right."
    solve: Callable[[list[int]], int | list[int]]
    "Value for an input; a number comes as a list of one."

    @property
    def signature(self) -> str:
        """The line that defines it."""
        return f"def {self.entry}({self.parameter}: {self.takes}) -> {self.returns}:"

    @property
    def parameter(self) -> str:
        """Name of what it takes."""
        return "x" if self.takes == "int" else "xs"

    def example(self, given: list[int]) -> str:
        """An input as it is written."""
        return repr(given[0] if self.takes == "int" else given)


class BuiltinCodeSource:
    """One family of functions, made as they are asked for."""

    def __init__(self, section: CodeTasks) -> None:
        self._family, self._levels = section.family, section.levels

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The one family."""
        sizes = tuple(None if size > _MAX_COUNTED else size for size in SIZES[: self._levels])
        return (FamilySpec(name=self._family, num_levels=self._levels, formats=CODE_FORMATS, num_tasks=sizes),)

    def make(self, family: str, level: int, seed: int) -> Task:
        """The function that a seed names.

        Raises:
            TaskError: another family or level.
        """
        if family != self._family or not 1 <= level <= self._levels:
            raise TaskError(
                f"this source has {self._family} with levels 1 to {self._levels}, got {family}, level {level}"
            )
        problem = _MAKERS[level - 1](seed * _STRIDE % SIZES[level - 1])
        inputs = _inputs(problem)
        prompt = _prompt(problem, inputs[:_SHOWN])
        answer = f"{problem.signature}\n    return {problem.code}"
        question = f"Complete this Python function.\n\n{prompt.strip()}"
        params = {"entry": problem.entry, "prompt": prompt, "preamble": "", "test": _test(problem, inputs[_SHOWN:])}
        return Task(
            id=task_id(family, level, question, answer),
            family=family,
            level=level,
            seed=seed,
            question=question,
            answer=answer,
            verifier=VerifierSpec(kind=VerifierKind.CODE, params=params),
            references=render_references(CODE_FORMATS, Solution(answer=answer, body=f"return {problem.code}")),
        )


# Problems -------------------------------------------------------------------------------------------------------------


def _options(pieces: tuple[Piece, ...], high: int) -> tuple[_Option, ...]:
    return tuple((piece, a) for piece in pieces for a in range(2, min(piece.high, high) + 1))


_ONE_STEP = _options(NUMBERS, 999)
_STEPS = _options(NUMBERS, 99)
_KEPT = _options(CONDITIONS, 120)


def _one_step(index: int) -> _Problem:
    return _of_number([_ONE_STEP[index]])


def _two_steps(index: int) -> _Problem:
    first, second = divmod(index, len(_STEPS))
    return _of_number([_STEPS[first], _STEPS[second]])


def _kept(index: int) -> _Problem:
    fold, condition = divmod(index, len(_KEPT))
    return _of_list(FOLDS[fold], _KEPT[condition], None)


def _mapped(index: int) -> _Problem:
    index, step = divmod(index, len(_STEPS))
    fold, condition = divmod(index, len(_KEPT))
    return _of_list(FOLDS[fold], _KEPT[condition], _STEPS[step])


_MAKERS = (_one_step, _two_steps, _kept, _mapped)
SIZES = (len(_ONE_STEP), len(_STEPS) ** 2, len(FOLDS) * len(_KEPT), len(FOLDS) * len(_KEPT) * len(_STEPS))
"""Functions of each level."""
assert len(SIZES) == BUILTIN_LEVELS, "the config has other levels than there are"


def _of_number(steps: list[_Option]) -> _Problem:
    code = "x"
    for piece, a in steps:
        code = piece.code.format(x=code if code == "x" else f"({code})", a=a)

    def solve(given: list[int]) -> int:
        (value,) = given
        for piece, a in steps:
            value = piece.does(value, a)
        return value

    says = ", then ".join(piece.says.format(a=a) for piece, a in steps)
    return _Problem(
        entry="_".join(f"{piece.name}_{a}" for piece, a in steps), takes="int", returns="int", says=f"Return x {says}.",
        code=code, bounds=tuple(a for _, a in steps), solve=solve,
    )  # fmt: skip


def _of_list(fold: Fold, kept: _Option, step: _Option | None) -> _Problem:
    condition, bound = kept
    each = "x" if step is None else step[0].code.format(x="x", a=step[1])
    listed = f"[{each} for x in xs if {condition.code.format(x='x', a=bound)}]"

    def solve(given: list[int]) -> int | list[int]:
        found = [x for x in given if condition.does(x, bound)]
        return fold.does(found if step is None else [step[0].does(x, step[1]) for x in found])

    numbers = f"the numbers in xs that are {condition.says.format(a=bound)}"
    says = f"{fold.says} {numbers}" + ("" if step is None else f", each {step[0].says.format(a=step[1])}")
    return _Problem(
        entry=f"{fold.name}_{condition.name}_{bound}" + ("" if step is None else f"_{step[0].name}_{step[1]}"),
        takes="list[int]",
        returns="int" if isinstance(fold.does([]), int) else "list[int]", says=f"Return {says}.",
        code=fold.code.format(xs=listed), bounds=(bound,), solve=solve,
    )  # fmt: skip


# Texts ----------------------------------------------------------------------------------------------------------------


def _inputs(problem: _Problem) -> list[list[int]]:
    """Inputs, no two alike; those of the docstring come first, and of a list the first hidden one is empty."""
    rng = Random(derive_seed("inputs", problem.entry))
    reach = max(40, *problem.bounds)
    # At the product of two constants, a step after a division has something to choose between.
    edges = {*problem.bounds, math.prod(problem.bounds)}
    near = [sign * edge * k + d for edge in sorted(edges) for k in (1, 2, 3) for d in (-1, 0, 1) for sign in (-1, 1)]

    def number() -> int:
        return rng.choice(near) if rng.random() < 0.4 else rng.randint(-reach, 2 * reach)

    def drawn() -> list[list[int]]:
        found: list[list[int]] = []
        while len(found) < _SHOWN + _HIDDEN:
            if problem.takes == "int":
                made = [number()]
            else:
                made = [] if len(found) == _SHOWN else [number() for _ in range(rng.randint(3, 6))]
            if made not in found:
                found.append(made)
        return found

    inputs = drawn()
    for _ in range(_DRAWS):
        if _tells(problem, inputs[_SHOWN:]):
            break
        # A few functions are one value for all inputs, or the identity: no draw can tell, and the last one stands.
        inputs = drawn()
    return inputs


def _tells(problem: _Problem, hidden: list[list[int]]) -> bool:
    """Whether neither one value for all inputs nor the input itself passes."""
    values = [problem.solve(given) for given in hidden]
    same = [given[0] if problem.takes == "int" else given for given in hidden]
    return any(value != values[-1] for value in values) and values != same


def _prompt(problem: _Problem, shown: list[list[int]]) -> str:
    examples = "".join(
        f"    >>> {problem.entry}({problem.example(given)})\n    {problem.solve(given)!r}\n" for given in shown
    )
    return f'{problem.signature}\n    """{problem.says}\n\n{examples}    """\n'


def _test(problem: _Problem, hidden: list[list[int]]) -> str:
    lines = [f"    assert candidate({problem.example(given)}) == {problem.solve(given)!r}\n" for given in hidden]
    return "def check(candidate):\n" + "".join(lines)
