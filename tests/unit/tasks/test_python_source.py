import random
from pathlib import Path

import pytest

from coharness.config.schema import PythonTasks
from coharness.records.errors import TaskError
from coharness.records.task import VerifierKind
from coharness.tasks import TaskSources, build_sources, simple_source

MY_TASKS = """
from coharness.tasks import simple_source

def question(level, rng):
    a, b = rng.randrange(10**level), rng.randrange(10**level)
    return f"What is {a} + {b}?", str(a + b)

def score(question, expected, answer):
    return 1.0 if answer == expected else 0.25 if answer[-1:] == expected[-1:] else 0.0

def make():
    return simple_source("addition", question, levels=3, score=score)

def wrong():
    return question
"""


def load(tmp_path: Path, path: str = "my_tasks.py:make") -> TaskSources:
    (tmp_path / "my_tasks.py").write_text(MY_TASKS)
    return build_sources([PythonTasks(type="python", path=path)], tmp_path)


def add(level: int, rng: random.Random) -> tuple[str, str]:
    return f"add {level}", f" {rng.random()} "


def test_a_file_of_the_user_is_a_source(tmp_path: Path) -> None:
    sources = load(tmp_path)
    task = sources.make("addition", 2, 7)
    a, b = (int(word.strip("?")) for word in task.question.split() if word.strip("?").isdigit())
    assert task.answer == str(a + b)
    assert task == load(tmp_path).make("addition", 2, 7)
    assert task.verifier.kind is VerifierKind.PYTHON
    assert sources.scorers["addition"]("", "12", "42") == 0.25


def test_a_source_without_a_score_compares_exactly() -> None:
    source = simple_source("add", add, levels=2)
    task = source.make("add", 1, 3)
    assert task.verifier.kind is VerifierKind.EXACT
    assert task.answer == task.answer.strip() != ""
    assert task.id != source.make("add", 1, 4).id


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_tasks.py", "path/to/file.py:function"),
        ("my_tasks:make", "path/to/file.py:function"),
        ("gone.py:make", "no file .*gone.py"),
        ("my_tasks.py:mak", r"no function 'mak'; it has \['make', 'question', 'score', 'simple_source', 'wrong'\]"),
        ("my_tasks.py:wrong", "must return a task source .* got function"),
        ("broken.py:make", "broken.py fails to import: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "broken.py").write_text("x = 1 / 0")
    with pytest.raises(TaskError, match=message):
        load(tmp_path, path)


def test_formats_that_need_a_trace_are_refused() -> None:
    with pytest.raises(TaskError, match=r"formats are some of plain, mirror, .* got \['trace'\]"):
        simple_source("add", add, formats=("trace",))
    with pytest.raises(TaskError, match="levels must be at least 1"):
        simple_source("add", add, levels=0)


@pytest.mark.parametrize("made", [("q", 3), "q", ("q", "a", "b")])
def test_a_function_that_returns_something_else_is_named(made: object) -> None:
    source = simple_source("odd", lambda level, rng: made)  # type: ignore[arg-type, return-value]
    with pytest.raises(TaskError, match=r"odd: make\(level, rng\) must return \(question, answer\)"):
        source.make("odd", 1, 0)
    with pytest.raises(TaskError, match="empty answer"):
        simple_source("odd", lambda level, rng: ("q", " ")).make("odd", 1, 0)
