"""Conformance suite of task sources: what the loop relies on, checked for any source, a user's own included.

Used in a test: `check_task_source(my_source())`. Each failed promise raises AssertionError naming the recipe and the fix.
"""

import json
import pickle
from collections.abc import Sequence

from coharness.records.protocols import TaskSource
from coharness.records.task import Task, VerifierKind, pool_of, task_id
from coharness.tasks.formats import FORMATS

DEFAULT_SEEDS = (0, 1, 2, 1_000, 2**31, 2**63 - 1)
"""Small ones, and as large as the core hands out (63 bits)."""


def check_task_source(source: TaskSource, seeds: Sequence[int] = DEFAULT_SEEDS) -> None:
    """Check every family and level of `source` at these seeds.

    Promises: families are named once and are the same when asked again; a task is a function of its recipe, is named by its
    content, survives pickling, and its specs are JSON; there is a reference in each of the family's formats, no longer than
    the family says, from which the answer is read back; a finite level takes seeds modulo its number of tasks.

    Raises:
        AssertionError: a promise is broken.
    """
    specs = source.families
    names = [spec.name for spec in specs]
    assert names, "a source offers at least one family"
    assert len(set(names)) == len(names), f"families are named once, got {names}"
    assert specs == source.families, "families must be the same whenever they are asked for"
    for spec in specs:
        assert spec.num_levels == len(spec.num_tasks) >= 1, f"{spec.name}: num_tasks has one entry a level, got {spec}"
        assert spec.formats, f"{spec.name}: a family has at least one format"
        unknown = [name for name in spec.formats if name not in FORMATS]
        assert not unknown, f"{spec.name}: formats {unknown} do not exist"
        for level in range(1, spec.num_levels + 1):
            for seed in seeds:
                task = source.make(spec.name, level, seed)
                _check_task(task, spec.formats, spec.max_answer_chars)
                assert (task.family, task.level, task.seed) == (spec.name, level, seed), (
                    f"{task.ref} has another recipe"
                )
                again = source.make(spec.name, level, seed)
                assert again == task, (
                    f"{task.ref}: the same recipe gave another task; take all randomness from the seed"
                )
            count = spec.num_tasks[level - 1]
            if count is not None:
                _check_finite(source, spec.name, level, count)


def _check_task(task: Task, formats: Sequence[str], max_answer_chars: int) -> None:
    content = task_id(task.family, task.level, task.question, task.answer)
    assert task.id == content, f"{task.ref}: the id is {content} by content (coharness.records.task.task_id)"
    assert task.pool is pool_of(task.id), f"{task.ref}: the pool is a function of the id"
    assert task.question.strip(), f"{task.ref}: the question is empty"
    assert task.answer == task.answer.strip(), f"{task.ref}: the answer {task.answer!r} has white space around it"
    assert tuple(task.references) == tuple(formats), f"{task.ref}: a reference in each of {formats}, in this order"
    for name, reference in task.references.items():
        read = FORMATS[name].extract(reference)
        assert FORMATS[name].is_faithful(read, task.answer), (
            f"{task.ref}: format {name} reads {read!r} from {reference!r}, not {task.answer!r}"
        )
        assert not max_answer_chars or len(reference) <= max_answer_chars, (
            f"{task.ref}: {name} is over max_answer_chars"
        )
    assert isinstance(task.verifier.kind, VerifierKind), f"{task.ref}: unknown verifier {task.verifier.kind!r}"
    params = dict(task.verifier.params)
    assert json.loads(json.dumps(params)) == params, f"{task.ref}: verifier params {params} do not survive JSON"
    json.dumps(dict(task.metadata))
    assert pickle.loads(pickle.dumps(task)) == task, f"{task.ref}: the task changes when it is pickled"


def _check_finite(source: TaskSource, family: str, level: int, count: int) -> None:
    assert count >= 1, f"{family}, level {level}: a level holds at least one task"
    for seed in (0, count - 1):
        first, wrapped = source.make(family, level, seed), source.make(family, level, seed + count)
        assert first.id == wrapped.id, f"{family}, level {level}: seeds count modulo {count}"
