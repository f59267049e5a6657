import json
from pathlib import Path
from typing import Any

import pytest

from coharness.config.schema import JsonlTasks
from coharness.records.errors import TaskError
from coharness.records.task import VerifierKind
from coharness.tasks.jsonl import JsonlSource

GSM8K_ROW = {
    "question": "How many?",
    "answer": "16 - 3 = <<16-3=13>>13 eggs.\nThat is 13 * 2 = $<<13*2=26>>26.\n#### 1,026",
}
SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def source(tmp_path: Path, text: str | list[dict[str, Any]], **settings: Any) -> JsonlSource:
    content = text if isinstance(text, str) else "\n".join(json.dumps(row) for row in text)
    (tmp_path / "rows.jsonl").write_text(content, encoding="utf-8")
    return JsonlSource(JsonlTasks(type="jsonl", **{"path": "rows.jsonl", "family": "rows", **settings}), tmp_path)


@pytest.fixture(scope="module")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the public data sets are not at {SHARED}")
    return SHARED


def test_steps_before_the_answer_are_a_worked_reference_without_calculator_marks(tmp_path: Path) -> None:
    made = source(tmp_path, [GSM8K_ROW], answer_pattern="#### (.+)", verifier="numeric")
    task = made.make("rows", 1, 0)
    assert task.answer == "1,026"
    assert task.references["worked"] == "16 - 3 = 13 eggs.\nThat is 13 * 2 = $26.\nAnswer: 1,026"
    assert task.references["boxed"] == "\\boxed{1,026}"
    assert task.verifier.kind is VerifierKind.NUMERIC
    assert task.metadata == {"row": "rows.jsonl:1"}


def test_rows_without_steps_offer_no_worked_format(tmp_path: Path) -> None:
    made = source(tmp_path, [GSM8K_ROW, {"question": "q", "answer": "#### 5"}], answer_pattern="#### (.+)")
    assert made.families[0].formats == ("answer_line", "boxed", "tagged")


def test_a_format_that_cannot_carry_an_answer_is_not_offered(tmp_path: Path) -> None:
    made = source(tmp_path, [{"question": "q", "answer": "close it with </answer>"}])
    assert made.families[0].formats == ("answer_line", "boxed")


def test_levels_are_quantiles_of_length_and_repeated_rows_count_once(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": "x" * (1 + i % 9)} for i in range(90)]
    made = source(tmp_path, rows + rows, levels=3)
    spec = made.families[0]
    assert spec.num_tasks == (30, 30, 30)
    lengths = [[len(made.make("rows", level, seed).answer) for seed in range(30)] for level in (1, 2, 3)]
    assert [set(level) for level in lengths] == [{1, 2, 3}, {4, 5, 6}, {7, 8, 9}]
    assert made.make("rows", 1, 3).id == made.make("rows", 1, 33).id


def test_a_question_may_be_a_template_and_the_file_one_array(tmp_path: Path) -> None:
    rows = [{"Body": "Dan had $ 3.", "Question": "How much {is} it?", "Answer": 51.0}]
    made = source(tmp_path, json.dumps(rows), question="{Body} {Question}", answer="Answer", verifier="numeric")
    task = made.make("rows", 1, 0)
    assert task.question == "Dan had $ 3. How much {is} it?"
    assert task.answer == "51"


def test_choices_come_from_the_row_and_are_lettered_in_the_question(tmp_path: Path) -> None:
    rows = [{"question": "Colour?", "answer": "B", "options": ["red", "blue"]}]
    settings: dict[str, Any] = {"verifier": "choice", "verifier_params": {"choices": "options"}}
    task = source(tmp_path, rows, question="{question}\n{options}", **settings).make("rows", 1, 0)
    assert task.question == "Colour?\nA) red\nB) blue"
    assert task.verifier.params == {"choices": ["red", "blue"]}
    with pytest.raises(
        TaskError, match=r"rows.jsonl:1: no field 'choices'; the row has 'question', 'answer', 'options'"
    ):
        source(tmp_path, rows, verifier="choice")


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ('{"question": "q", "answer": "a"}\n{"question": ', {}, r"rows.jsonl:2: not JSON"),
        ('{"question": "q", "answer": "a"}\n\n[1]', {}, r"rows.jsonl:3: a row is a JSON object, got list"),
        ('{"question": "q", "reply": "a"}', {}, r"rows.jsonl:1: no field 'answer'; the row has 'question', 'reply'"),
        ('[{"question": "q", "answer": "a"}, 3]', {}, r"rows.jsonl: element 1: a row is a JSON object, got int"),
        ('{"question": "q", "answer": " "}', {}, r"rows.jsonl:1: the field 'answer' holds no answer"),
        ('{"question": "q", "answer": "5"}', {"answer_pattern": "#### (.+)"}, r"rows.jsonl:1: answer_pattern .* match"),
        ('{"question": "q", "answer": "5"}', {"answer_pattern": "####"}, "needs a group"),
        ('{"question": "q", "answer": "5"}', {"answer_pattern": "(("}, "no regular expression"),
        ('{"question": "q", "answer": "5"}', {"question": "{question"}, "template .* malformed"),
        ('{"question": "q", "answer": "5"}', {"question": "{Body}"}, "no field 'Body'"),
        ('{"question": "q", "answer": "5"}', {"levels": 2}, "1 distinct rows cannot be cut into 2 levels"),
        ("\n", {}, "holds no rows"),
        ('{"question": "q", "answer": "5"}', {"path": "row.jsonl"}, "no file .*row.jsonl; beside it lies rows.jsonl"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(
    tmp_path: Path, text: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        source(tmp_path, text, **settings)


def test_a_line_separator_inside_a_string_ends_no_row(tmp_path: Path) -> None:
    made = source(tmp_path, '{"question": "a\u2028b", "answer": "c"}\r\n{"question": "d", "answer": "e"}\r\n')
    assert made.families[0].num_tasks == (2,)


def test_gsm8k_and_svamp_are_read_as_they_come(shared_data: Path) -> None:
    gsm8k = JsonlSource(
        JsonlTasks(
            type="jsonl",
            path="gsm8k/test.jsonl",
            family="gsm8k",
            answer_pattern="#### (.+)",
            verifier="numeric",
            levels=4,
        ),
        shared_data,
    )
    (spec,) = gsm8k.families
    assert sum(n or 0 for n in spec.num_tasks) == 1_319
    assert spec.formats == ("answer_line", "boxed", "tagged", "worked")
    assert not any("<<" in gsm8k.make("gsm8k", 4, seed).references["worked"] for seed in range(330))
    svamp = JsonlSource(
        JsonlTasks(
            type="jsonl", path="svamp/SVAMP.json", family="svamp", question="{Body} {Question}", answer="Answer",
            verifier="numeric",
        ),
        shared_data,
    )  # fmt: skip
    assert svamp.families[0].num_tasks == (1_000,)
    assert svamp.make("svamp", 1, 0).answer.isdigit()
