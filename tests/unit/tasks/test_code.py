"""Functions to write, from a file: what a task says, what a file may get wrong, and nothing of it executed."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from coharness.config.load import config_from
from coharness.config.sandbox import CodeTasks
from coharness.records.errors import TaskError
from coharness.records.task import VerifierKind
from coharness.tasks.code import CodeSource
from coharness.tasks.sources import build_sources
from coharness.testing.task_sources import check_task_source

HELPED = '''import math


def helper(x):
    return x + 1


def twice(x: int) -> int:
    """Two times the helper.

    >>> twice(1)
    4
    """
'''


def row(number: int = 0, **fields: Any) -> dict[str, Any]:
    made = {
        "task_id": f"Own/{number}",
        "prompt": HELPED.replace("twice", f"twice_{number}"),
        "entry_point": f"twice_{number}",
        "canonical_solution": "    y = helper(x)\n" + f"    y += {number} * 0\n" * number + "    return 2 * y\n",
        "test": "def check(candidate):\n    assert candidate(1) == 4\n",
    }
    return {**made, **fields}


def source(folder: Path, *rows: dict[str, Any], name: str = "rows.jsonl", **fields: Any) -> CodeSource:
    text = "\n".join(json.dumps(r) for r in rows)
    if name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(text.encode()))
    else:
        (folder / name).write_text(text, encoding="utf-8")
    return CodeSource(CodeTasks(type="code", path=name, **fields), folder)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_the_source_keeps_the_promises_of_the_shipped_suite(tmp_path: Path, name: str) -> None:
    made = source(tmp_path, *(row(k) for k in range(7)), name=name, levels=3)
    check_task_source(made)
    assert made.families[0].num_tasks == (2, 2, 3)
    assert pickle.loads(pickle.dumps(made)).make("code", 2, 1) == made.make("code", 2, 1)


def test_a_task_asks_for_the_function_and_hides_its_test(tmp_path: Path) -> None:
    task = source(tmp_path, row()).make("code", 1, 0)
    assert task.question == "Complete this Python function.\n\n" + HELPED.replace("twice", "twice_0").strip()
    assert task.answer == "def twice_0(x: int) -> int:\n    y = helper(x)\n    return 2 * y"
    assert task.verifier.kind is VerifierKind.CODE
    params = task.verifier.params
    assert params["entry"] == "twice_0"
    assert params["preamble"] == "import math\ndef helper(x):\n    return x + 1"
    assert params["test"] not in task.question
    assert task.references["tagged"] == f"<answer>{task.answer}</answer>"
    assert task.references["fenced"] == f"```python\n{task.answer}\n```"
    assert task.references["body"] == "y = helper(x)\n    return 2 * y"
    assert task.metadata == {"row": "rows.jsonl:1"}


def test_text_inside_the_body_stays_as_it_is(tmp_path: Path) -> None:
    body = '    text = """a  \n\n      b"""\n    # a remark\n    return len(text) * 0 + 2 * helper(x)\n'
    assert source(tmp_path, row(canonical_solution=body)).make("code", 1, 0).answer.endswith(body.rstrip())


@pytest.mark.parametrize(
    ("begin", "solution", "body"),
    [
        ("def f(x):\n", "    return x\n", "return x"),
        ("def f(x): ", "return x\n", "return x"),
        ("def f(x):\n", "    # first\n    y = 'é'; return y\n", "y = 'é'; return y"),
        ('def f(x): "doc"; ', "return 'é'\n", "return 'é'"),
        ('def f(x):\n    """doc"""\n', "    # first\n    return x\n", "# first\n    return x"),
        ('def f(\n    x,\n):\n    """doc"""\n', "    return x\n\n\nz = 1\n", "return x"),
    ],
)
def test_the_body_is_what_follows_signature_and_docstring(tmp_path: Path, begin: str, solution: str, body: str) -> None:
    made = source(tmp_path, row(prompt=begin, entry_point="f", canonical_solution=solution)).make("code", 1, 0)
    assert made.references["body"] == body
    assert made.answer.endswith(body)


def test_short_functions_are_the_easy_ones(tmp_path: Path) -> None:
    made = source(tmp_path, *(row(k) for k in (5, 0, 3, 1)), levels=4)
    assert [made.make("code", level, 0).metadata["row"] for level in (1, 2, 3, 4)] == [
        "rows.jsonl:2", "rows.jsonl:4", "rows.jsonl:3", "rows.jsonl:1"
    ]  # fmt: skip


def test_nothing_of_a_row_is_executed(tmp_path: Path) -> None:
    touch = f"open({str(tmp_path / 'touched')!r}, 'w')\n"
    made = source(tmp_path, row(prompt=touch + HELPED.replace("twice", "twice_0"), test=touch + row()["test"]))
    assert made.make("code", 1, 0).verifier.params["preamble"].startswith(touch.strip())
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no rows"),
        ([row(test=3)], "rows.jsonl:1: test missing or no text"),
        ([{"question": "?"}], "prompt, entry_point, canonical_solution, test missing or no text; the row has question"),
        ([row(), row(1, canonical_solution="  return (")], "rows.jsonl:2: the reference or the test is no Python"),
        ([row(test="def check(")], "rows.jsonl:1: the reference or the test is no Python"),
        ([row(entry_point="thrice")], "define no function 'thrice'"),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(TaskError, match=message.replace("(", "\\(")):
        source(tmp_path, *rows)


def test_a_format_that_some_function_breaks_is_not_offered(tmp_path: Path) -> None:
    broken = row(canonical_solution="    return '</answer> Answer: 1'\n")
    assert source(tmp_path, broken).families[0].formats == ("fenced", "body")


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no file"):
        CodeSource(CodeTasks(type="code", path="nowhere.jsonl"), tmp_path)
    (tmp_path / "rows.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(TaskError, match="no text of UTF-8 in gzip"):
        CodeSource(CodeTasks(type="code", path="rows.jsonl.gz"), tmp_path)
    with pytest.raises(TaskError, match="1 distinct rows cannot be cut into 2 levels"):
        source(tmp_path, row(), row(), levels=2)
    with pytest.raises(TaskError, match="levels 1 to 1, got code, level 2"):
        source(tmp_path, row()).make("code", 2, 0)


def test_a_config_names_the_file_from_its_own_folder(tmp_path: Path) -> None:
    source(tmp_path, row())
    data = {"run_dir": "run", "tasks": [{"type": "code", "path": "rows.jsonl", "family": "own"}]}
    config = config_from({**data, "reward": {"sandbox": {"minimum": "bubblewrap"}}}, folder=tmp_path)
    assert config.reward.sandbox.minimum == "bubblewrap"
    assert build_sources(config.tasks, Path("/")).make("own", 1, 0).verifier.kind is VerifierKind.CODE
