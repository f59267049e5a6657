from dataclasses import replace
from pathlib import Path

import pytest

from coharness.config.schema import BuiltinTasks, JsonlTasks
from coharness.records.errors import TaskError
from coharness.records.ids import TaskId
from coharness.tasks import build_sources


def test_a_task_is_rebuilt_from_its_recipe() -> None:
    sources = build_sources([BuiltinTasks()], Path())
    task = sources.make("count", 3, 17)
    assert sources.make(task.ref) == task


def test_a_recipe_that_gives_another_task_here_is_an_error() -> None:
    sources = build_sources([BuiltinTasks()], Path())
    ref = replace(sources.make("count", 3, 17).ref, id=TaskId("0" * 16))
    with pytest.raises(TaskError, match="data or code differ"):
        sources.make(ref)


def test_sections_are_joined_and_one_name_belongs_to_one_source(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "q", "answer": "a"}')
    joined = build_sources(
        [BuiltinTasks(families=("sort",)), JsonlTasks(type="jsonl", path="rows.jsonl", family="rows")], tmp_path
    )
    assert list(joined.families) == ["sort", "rows"]
    assert joined.make("rows", 1, 5).answer == "a"
    with pytest.raises(TaskError, match="two task sources offer a family named 'sort'"):
        build_sources([BuiltinTasks(), JsonlTasks(type="jsonl", path="rows.jsonl", family="sort")], tmp_path)
