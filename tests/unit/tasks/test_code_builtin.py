"""The built-in functions: what is asked, and what their tests hold. That references pass them is shown beside the sandbox."""

import ast
from pathlib import Path

import pytest
from pydantic import ValidationError

from coharness.config.load import config_from
from coharness.config.sandbox import BUILTIN_LEVELS, CodeTasks
from coharness.records.errors import TaskError
from coharness.records.task import MIN_TASKS_TO_SEAL
from coharness.tasks.code_builtin import SIZES, BuiltinCodeSource
from coharness.tasks.sources import build_sources
from coharness.testing.task_sources import check_task_source

SOURCE = BuiltinCodeSource(CodeTasks(type="code", levels=BUILTIN_LEVELS))


def inputs(source: str) -> list[str]:
    """Arguments of each call that a docstring shows, or else that a test makes."""
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree.body[0]) or ""  # type: ignore[arg-type]
    shown = [line.partition("(")[2] for line in docstring.split("\n") if line.startswith(">>> ")]
    return shown or [ast.unparse(node).partition("(")[2] for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_the_source_keeps_the_promises_of_the_shipped_suite() -> None:
    check_task_source(SOURCE, seeds=(0, 1, 2, 1_000, 2**63 - 1))


def test_seeds_number_the_functions_and_every_level_may_be_sealed() -> None:
    (spec,) = SOURCE.families
    assert spec.num_tasks == (6986, None, 2238, None)
    for level, size in enumerate(SIZES, 1):
        assert size >= MIN_TASKS_TO_SEAL
        seeds = range(size) if level == 3 else range(500)
        assert len({SOURCE.make("code", level, seed).id for seed in seeds}) == len(seeds)
        assert SOURCE.make("code", level, 7).id == SOURCE.make("code", level, 7 + size).id


@pytest.mark.parametrize("level", range(1, BUILTIN_LEVELS + 1))
def test_no_input_of_the_hidden_test_is_shown(level: int) -> None:
    for seed in range(60):
        params = SOURCE.make("code", level, seed).verifier.params
        shown, hidden = inputs(params["prompt"] + "    pass\n"), inputs(params["test"])
        assert len(shown) == 2
        assert len(set(hidden)) == 6
        assert not set(shown) & set(hidden)


@pytest.mark.parametrize("level", range(1, BUILTIN_LEVELS + 1))
def test_neither_a_constant_nor_the_input_passes(level: int) -> None:
    passed = 0
    for seed in range(100):
        test = ast.parse(SOURCE.make("code", level, seed).verifier.params["test"])
        asserted = [node.test for node in ast.walk(test) if isinstance(node, ast.Assert)]
        pairs = [(ast.unparse(a.left), ast.unparse(a.comparators[0])) for a in asserted if isinstance(a, ast.Compare)]
        is_constant = len({value for _, value in pairs}) == 1
        passed += is_constant or all(call == f"candidate({value})" for call, value in pairs)
    # Of two steps some undo each other or leave nothing to choose: at most 2, then at least 50.
    assert passed <= (10 if level == 2 else 0)


def test_a_config_without_a_file_means_the_built_in_functions() -> None:
    config = config_from({"run_dir": "run", "tasks": [{"type": "code", "levels": 3}]})
    (spec,) = build_sources(config.tasks, Path("/")).families.values()
    assert (spec.name, spec.num_levels, spec.formats[0]) == ("code", 3, "fenced")


def test_levels_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValidationError, match="more than the 4 levels of the built-in functions"):
        CodeTasks(type="code", levels=5)
    with pytest.raises(TaskError, match="levels 1 to 4, got code, level 5"):
        SOURCE.make("code", 5, 0)
