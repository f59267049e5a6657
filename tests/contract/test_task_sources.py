"""Every task source keeps the promises of the shipped suite, and the suite notices when one does not."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coharness.config.schema import JsonlTasks, ReasoningGymTasks
from coharness.records.errors import TaskError
from coharness.records.ids import TaskId
from coharness.records.protocols import TaskSource
from coharness.records.task import FamilySpec, Task
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.jsonl import JsonlSource
from coharness.tasks.python_source import simple_source
from coharness.tasks.reasoning_gym import ReasoningGymSource
from coharness.testing.task_sources import check_task_source

GYM = ReasoningGymTasks(
    type="reasoning_gym",
    families=("basic_arithmetic", "prime_factorization", "ab", "string_manipulation", "spiral_matrix", "countdown"),
    partial_credit=True,
)
SEEDED = ("ab", "zebra_puzzles", "pool_matrix")


def add(level: int, rng: object) -> tuple[str, str]:
    number = rng.randrange(10**level)  # type: ignore[attr-defined]
    return f"{number} + 1", str(number + 1)


def jsonl(tmp_path: Path) -> TaskSource:
    rows = [f'{{"question": "{i} + {i}", "answer": "So it is\\n#### {2 * i}"}}' for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    section = JsonlTasks(type="jsonl", path="rows.jsonl", family="rows", answer_pattern="#### (.+)", levels=3)
    return JsonlSource(section, tmp_path)


BUILDERS: dict[str, Callable[[Path], TaskSource]] = {
    "builtin": lambda _: BuiltinSource(),
    "jsonl": jsonl,
    "python": lambda _: simple_source("add", add, levels=3),
    "reasoning_gym": lambda _: ReasoningGymSource(GYM),
}


@pytest.fixture(params=BUILDERS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> TaskSource:
    return BUILDERS[request.param](tmp_path)


def test_every_source_passes_the_shipped_suite(source: TaskSource) -> None:
    check_task_source(source)


def test_every_source_refuses_what_it_does_not_offer(source: TaskSource) -> None:
    spec = source.families[0]
    for family, level in ((spec.name, 0), (spec.name, spec.num_levels + 1), ("nonsense", 1)):
        with pytest.raises(TaskError):
            source.make(family, level, 0)


def test_a_source_survives_pickling(source: TaskSource) -> None:
    copy: TaskSource = pickle.loads(pickle.dumps(source))
    spec = source.families[-1]
    assert copy.families == source.families
    assert copy.make(spec.name, 1, 11) == source.make(spec.name, 1, 11)


def test_two_processes_with_other_hash_seeds_make_the_same_tasks() -> None:
    program = (
        "from coharness.config.schema import ReasoningGymTasks\n"
        "from coharness.tasks.reasoning_gym import ReasoningGymSource\n"
        "from coharness.tasks.builtin import BuiltinSource, FAMILY_NAMES\n"
        f"gym = ReasoningGymSource(ReasoningGymTasks(type='reasoning_gym', families={SEEDED}))\n"
        f"print([gym.make(f, 1, s).id for f in {SEEDED} for s in range(5)])\n"
        "print([BuiltinSource().make(f, l, s).id for f in FAMILY_NAMES for l in (1, 5) for s in range(5)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


class Broken:
    """A source that breaks one promise."""

    families: tuple[FamilySpec, ...] = (
        FamilySpec(name="add", num_levels=1, formats=("answer_line",), num_tasks=(None,), max_answer_chars=40),
    )

    def __init__(self, flaw: Callable[[Task], Task]) -> None:
        self._flaw = flaw
        self._sound = simple_source("add", add, formats=("answer_line",))

    def make(self, family: str, level: int, seed: int) -> Task:
        return self._flaw(self._sound.make(family, level, seed))


def unstable() -> Callable[[Task], Task]:
    calls = iter(range(10_000))
    return lambda task: replace(task, metadata={"call": next(calls)})


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        (lambda task: replace(task, id=TaskId("0" * 16)), "by content"),
        (lambda task: replace(task, references={"answer_line": "Answer: -1"}), "reads '-1'"),
        (lambda task: replace(task, references={}), "a reference in each of"),
        (lambda task: replace(task, references={"answer_line": " " * 99 + task.references["answer_line"]}), "is over"),
        (lambda task: replace(task, seed=task.seed + 1), "another recipe"),
        (unstable(), "take all randomness from the seed"),
    ],
)
def test_the_suite_notices_a_broken_promise(flaw: Callable[[Task], Task], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_task_source(Broken(flaw))
