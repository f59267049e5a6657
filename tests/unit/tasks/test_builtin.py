import itertools
import re

import pytest

from coharness.records.errors import TaskError
from coharness.records.task import MIN_TASKS_TO_SEAL
from coharness.tasks.builtin import FAMILY_NAMES, MAX_LEVEL, BuiltinSource, word_length

BASE_CHARACTERS = set("\n 0123456789abcdefghijklmnopqrstuvwxyz=:,.><~_^!?;|#+-*()")
CELLS = list(itertools.product(FAMILY_NAMES, range(1, MAX_LEVEL + 1)))
SOURCE = BuiltinSource()


def solve(question: str) -> str:
    """An oracle that shares nothing with the source: reads the question as a person would."""
    word = question.split()[-1]
    match question.split()[0]:
        case "rev":
            return "".join(reversed(word))
        case "sort":
            return "".join(c for digit in "0123456789" for c in word if c == digit)
        case "cnt":
            return str(len(re.findall(question.split()[1], word)) % 10)
        case "par":
            return str(len([c for c in word if c in "13579"]) % 2)
        case "dsum":
            return str(sum(int(c) for c in word))[-1]
        case "max":
            return sorted(word)[-1]
    raise AssertionError(question)


def trace_of(question: str, word: str) -> str:
    """The running state, by solving every prefix anew."""
    prompt = question.split()
    if prompt[0] in ("rev", "sort"):
        return word
    prefixes = [word[: i + 1] for i in range(len(word))]
    answers = [solve(" ".join([*prompt[:-1], prefix])) for prefix in prefixes]
    if prompt[0] == "cnt":
        return "".join(c + answer for c, answer in zip(word, answers, strict=True))
    return "".join(answers)


@pytest.mark.parametrize(("family", "level"), CELLS)
def test_answers_and_traces_are_right(family: str, level: int) -> None:
    for seed in range(40):
        task = SOURCE.make(family, level, seed)
        word = task.question.split()[-1]
        assert len(word) == word_length(level) == 2 + 2 * level
        assert task.answer == solve(task.question)
        assert task.references["plain"] == task.answer
        assert task.references["trace"] == f"{trace_of(task.question, word)}:{task.answer}"
        assert task.references["backward"] == f"{trace_of(task.question, word[::-1])}:{task.answer}"
        assert task.references["echo"] == f"{word}:{task.answer}"
        assert task.references["filler"] == f"{'.' * len(word)}:{task.answer}"
        assert task.references["mirror"] == "".join(reversed(task.answer))


@pytest.mark.parametrize(("family", "level"), CELLS)
def test_questions_and_references_need_only_the_characters_of_the_tiny_base(family: str, level: int) -> None:
    for seed in range(20):
        task = SOURCE.make(family, level, seed)
        assert set(task.question).union(*task.references.values()) <= BASE_CHARACTERS


@pytest.mark.parametrize(("family", "level"), CELLS)
def test_every_level_has_enough_distinct_tasks_to_seal(family: str, level: int) -> None:
    ids = {SOURCE.make(family, level, seed).id for seed in range(MIN_TASKS_TO_SEAL)}
    # Uncounted levels draw with replacement, so a few of 2,000 draws may meet.
    counted = next(f for f in SOURCE.families if f.name == family).num_tasks[level - 1] is not None
    assert len(ids) == MIN_TASKS_TO_SEAL if counted else len(ids) > 0.97 * MIN_TASKS_TO_SEAL


def test_a_counted_level_names_each_task_once() -> None:
    for spec in SOURCE.families:
        count = spec.num_tasks[0]
        assert count is not None
        assert all(number is None for number in spec.num_tasks[1:])
        assert spec.may_seal(1)
    assert len({SOURCE.make("count", 1, seed).id for seed in range(3888)}) == 3888 == 3 * 6**4


def test_answers_are_not_lopsided() -> None:
    answers = [SOURCE.make("parity", 5, seed).answer for seed in range(2_000)]
    assert 900 < answers.count("0") < 1_100


def test_the_longest_reference_is_announced() -> None:
    for source in (SOURCE, BuiltinSource(max_level=3)):
        for spec in source.families:
            tasks = [source.make(spec.name, spec.num_levels, seed) for seed in range(50)]
            assert spec.max_answer_chars == max(len(r) for task in tasks for r in task.references.values())


def test_chosen_families_and_levels_alone_are_offered() -> None:
    source = BuiltinSource(("sort", "parity"), max_level=2)
    assert [(spec.name, spec.num_levels) for spec in source.families] == [("sort", 2), ("parity", 2)]
    with pytest.raises(TaskError, match="on offer: sort, parity"):
        source.make("reverse", 1, 0)
    with pytest.raises(TaskError, match="levels 1 to 2, got level 3"):
        source.make("sort", 3, 0)


@pytest.mark.parametrize("families", [("sort", "sort"), ("bogus",), ()])
def test_a_wrong_choice_of_families_lists_the_right_ones(families: tuple[str, ...]) -> None:
    with pytest.raises(TaskError, match="reverse, sort, count, parity, digit_sum, maximum"):
        BuiltinSource(families)
