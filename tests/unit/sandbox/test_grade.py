"""Grades: a test is taken apart, what it expects stays outside, and an answer is right by its values alone."""

import warnings
from typing import Any

import pytest

from coharness.records.errors import BoundaryError, TaskError
from coharness.reward.sandbox import Call, CodeGrader, CodeTest, Layer, Limits, Outcome, Program, Sandbox, Status, Usage
from coharness.reward.sandbox.examination import prepare
from coharness.reward.sandbox.grade import Grade, assemble

PROMPT = 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """Sum of xs."""\n'
PREAMBLE = "from typing import List"
REFERENCE = "def total(xs: List[int]) -> int:\n    return sum(xs)"
ASSERTS = (
    "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0, 'empty'\n"
    "    assert candidate([-1] * 3) == -3\n    assert candidate(xs=[5]) == 5\n"
)
LOOP = (
    "def check(candidate):\n    import random\n    for _ in range(20):\n        xs = [random.randint(-9, 9) for _ in range(5)]\n"
    "        assert candidate(list(xs)) == sum(xs)\n    assert abs(candidate([1, 1]) - 2.0) < 1e-6\n"
)


def code_test(test: str = ASSERTS, reference: str = REFERENCE, entry: str = "total") -> CodeTest:
    return CodeTest(entry=entry, preamble=PREAMBLE, test=test, reference=reference)


@pytest.fixture(scope="module")
def grader(sandbox: Sandbox) -> CodeGrader:
    return CodeGrader(sandbox)


def grade(grader: CodeGrader, answer: str, test: str = ASSERTS) -> Grade:
    return grader.grade(code_test(test), PROMPT, answer)


# Taking apart ------------------------------------------------------------------------------------------------------


def test_asserts_on_literals_become_calls_and_expectations(sandbox: Sandbox) -> None:
    examination = prepare(code_test(), sandbox)
    assert examination.judge == ""
    assert examination.calls == (
        Call(args=([1, 2],)),
        Call(args=([],)),
        Call(args=([-1] * 3,)),
        Call(kwargs={"xs": [5]}),
    )
    assert [assertion.expected for assertion in examination.assertions] == [3, 0, -3, 5]


def test_other_tests_are_recorded_with_the_reference(sandbox: Sandbox) -> None:
    examination = prepare(code_test(LOOP), sandbox)
    assert len(examination.calls) == examination.num_verdicts == 21
    assert examination.calls[-1] == Call(args=([1, 1],))
    assert prepare(code_test(LOOP), sandbox) == examination


@pytest.mark.parametrize("test", [ASSERTS, LOOP])
def test_what_goes_to_the_candidate_holds_nothing_that_is_expected(sandbox: Sandbox, test: str) -> None:
    marked = test.replace("== 0", "== 'zq7-marker'").replace("1e-6", "1e-6 or 'zq7-marker'")
    reference = "def total(xs):\n    return sum(xs) if xs else 'zq7-marker'"
    examination = prepare(code_test(marked, reference), sandbox)
    assert "zq7-marker" not in repr(Program(code="", entry="total", calls=examination.calls))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("x = 1", "defines no check"),
        ("def check(candidate:", "is no Python"),
        ("def check(candidate):\n    assert candidate([1]) == 2", "fails its own test"),
        ("def check(candidate):\n    for x in []:\n        assert candidate(x) == 1", "makes 0 calls"),
        ("def check(candidate):\n    for x in [1]:\n        candidate(x)", "does not run with its reference"),
        (
            "import time\ndef check(candidate):\n    for _ in range(2):\n        x = time.time()\n"
            "        assert candidate([x]) == x",
            "the same each time it runs",
        ),
    ],
)
def test_a_test_that_cannot_be_used_is_refused(sandbox: Sandbox, test: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        prepare(code_test(test), sandbox)


# Grading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [ASSERTS, LOOP], ids=["asserts", "loop"])
@pytest.mark.parametrize(
    "answer",
    [
        REFERENCE,
        "def total(xs):\n    t = 0\n    for x in xs:\n        t += x\n    return t",
        "    return sum(xs)",
        "return sum(xs)",
        "t = 0\n    for x in xs:\n        t += x\n    return t",
        "t = 0\nfor x in xs:\n    t += x\nreturn t",
        "Here it is:\n```python\ndef total(xs):\n    return sum(xs)\n```\nIt adds.",
        "```\nreturn sum(xs)\n```",
        "import math\n\ndef total(xs):\n    return int(math.fsum(xs))",
        "def total(xs):\n    print('fine')\n    return sum(xs)\n",
    ],
)
def test_right_answers_are_right_in_every_shape(grader: CodeGrader, answer: str, test: str) -> None:
    got = grade(grader, answer, test)
    assert (got.correct, got.partial, got.status, got.feedback) == (True, 1.0, Status.OK, "")


@pytest.mark.parametrize(
    ("answer", "partial", "feedback"),
    [
        ("def total(xs):\n    return abs(sum(xs))", 0.75, "some tests fail"),
        ("def total(xs):\n    return xs[0] + sum(xs[1:])", 0.75, "the code raised IndexError"),
        ("def total(xs):\n    return None", 0.0, "some tests fail"),
        ("def total(xs)\n    return sum(xs)", 0.0, "the code raised SyntaxError"),
        ("def sum_of(xs):\n    return sum(xs)", 0.0, "some tests fail"),
        ("def total(xs):\n    while True:\n        pass", 0.0, "the code ran too long"),
        ("import os\ndef total(xs):\n    os._exit(0)", 0.0, "the code's process ended by itself"),
        ("import os\ndef total(xs):\n    return os.fork()", 0.0, "the code tried something that is forbidden"),
        (
            "class Any:\n    def __eq__(self, other):\n        return True\ndef total(xs):\n    return Any()",
            0.0,
            "the code raised NotPlain",
        ),
        ("", 0.0, "some tests fail"),
        ("I cannot do that.", 0.0, "the code raised SyntaxError"),
    ],
)
def test_wrong_answers_are_wrong_and_their_share_is_kept(
    sandbox: Sandbox, answer: str, partial: float, feedback: str
) -> None:
    got = CodeGrader(Sandbox(ladder=sandbox._climb(), limits=Limits(timeout_s=2.0))).grade(code_test(), PROMPT, answer)
    assert not got.correct
    assert (got.partial, got.feedback) == (partial, feedback)


def test_a_right_start_earns_nothing_from_a_program_that_was_ended(grader: CodeGrader) -> None:
    answer = "import os\ndef total(xs):\n    return sum(xs) if xs != [5] else os._exit(0)"
    assert grade(grader, answer).partial == 0.0


def test_a_candidate_that_remembers_its_calls_meets_the_same_ones(grader: CodeGrader) -> None:
    answer = "seen = []\ndef total(xs):\n    seen.append(list(xs))\n    xs.clear()\n    return sum(seen[-1])"
    assert grade(grader, answer).correct
    assert grade(grader, answer, LOOP).correct


def test_each_assert_of_a_program_counts_for_itself(grader: CodeGrader) -> None:
    got = grade(grader, "def total(xs):\n    return sum(xs) if len(xs) == 5 else None", LOOP)
    assert not got.correct
    assert got.partial == pytest.approx(20 / 21)


def test_truth_identity_and_negation_are_understood(grader: CodeGrader) -> None:
    test = (
        "def check(candidate):\n    assert candidate([1]) is True\n    assert not candidate([])\n    assert candidate([2])\n"
        "    assert True, 'always'\n"
    )
    reference = "def total(xs):\n    return bool(xs)"
    right = grader.grade(code_test(test, reference), PROMPT, reference)
    wrong = grader.grade(code_test(test, reference), PROMPT, "def total(xs):\n    return xs[:1]")
    assert (right.partial, wrong.partial) == (1.0, pytest.approx(2 / 3))


def test_a_test_may_name_the_function_that_it_asks_for(grader: CodeGrader) -> None:
    test = "def check(candidate):\n    assert tuple([candidate([1, 2])]) == tuple([total([2, 1])])\n"
    assert grade(grader, REFERENCE, test).correct
    # The name means the reference in there, whatever the candidate makes of it.
    assert not grade(grader, "def total(xs):\n    return 7", test).correct


def test_parts_say_how_well_it_ran(grader: CodeGrader, sandbox: Sandbox) -> None:
    parts = grade(grader, REFERENCE).parts
    assert (parts["loads"], parts["runs"], parts["allowed"]) == (1.0, 1.0, 1.0)
    assert 0.0 < parts["time"] <= 1.0
    assert 0.0 < parts["memory"] <= 1.0
    raised = grade(grader, "def total(xs):\n    return xs[9]").parts
    assert raised == {"loads": 1.0, "runs": 0.0, "allowed": 1.0, "time": 0.0, "memory": 0.0}
    assert grade(grader, "def total(xs)").parts["loads"] == 0.0
    assert grade(grader, "import os\ndef total(xs):\n    os.fork()").parts["allowed"] == 0.0


def test_parts_are_shares_of_the_limits() -> None:
    made = Grade(
        correct=True, partial=1.0, status=Status.OK, error="", layer=Layer.LANDLOCK, feedback="",
        usage=Usage(wall_s=1.0, cpu_s=1.0, memory_bytes=64), limits=Limits(timeout_s=4.0, memory_bytes=256),
    )  # fmt: skip
    assert (made.parts["time"], made.parts["memory"]) == (0.75, 0.75)


class Failing:
    """A layer that fails as infrastructure."""

    layer = Layer.LANDLOCK

    def absent(self) -> str | None:
        return None

    def run(self, program: Program, limits: Limits) -> Outcome:
        return Outcome(status=Status.INFRA, layer=self.layer, detail="no room for processes")

    def close(self) -> None:
        pass


def test_a_sandbox_that_fails_is_never_a_grade() -> None:
    with pytest.raises(BoundaryError, match="the sandbox failed on a reference: no room for processes"):
        CodeGrader(Sandbox(ladder=[Failing()])).grade(code_test(), PROMPT, REFERENCE)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("def total(xs):\n    return 1", f"{PREAMBLE}\ndef total(xs):\n    return 1\n"),
        (
            "```py\ndef other():\n    pass\n```\n```py\ndef total(xs):\n    return 1\n```",
            f"{PREAMBLE}\ndef total(xs):\n    return 1\n",
        ),
        ("```python\ndef total(xs):\n    return 1", f"{PREAMBLE}\ndef total(xs):\n    return 1\n"),
        ("x = 1\n    return x", f"{PROMPT.rstrip()}\n    x = 1\n    return x\n"),
        ("if xs:\n    return 1\nreturn 0", f"{PROMPT.rstrip()}\n    if xs:\n        return 1\n    return 0\n"),
        ("\n    return 1\n", f"{PROMPT.rstrip()}\n    return 1\n"),
        ("def totals(xs):\n    return 1", f"{PROMPT.rstrip()}\n    def totals(xs):\n        return 1\n"),
        ("no code", f"{PROMPT.rstrip()}\n    no code\n"),
        ("t = sum(xs)\n  return t", f"{PROMPT.rstrip()}\n    t = sum(xs)\n    return t\n"),
        ("t = 1\n    return t\n\nprint(total([1]))", f"{PROMPT.rstrip()}\n    t = 1\n    return t\n\n"),
        ("t = 1\n    return t\nThat is all!", f"{PROMPT.rstrip()}\n    t = 1\n    return t\n"),
        (
            'def total(xs):\n    """Adds.\n\n    ```\n    total([1])\n    ```\n    """\n    return 1',
            f'{PREAMBLE}\ndef total(xs):\n    """Adds.\n\n    ```\n    total([1])\n    ```\n    """\n    return 1\n',
        ),
    ],
)
def test_an_answer_becomes_a_program(answer: str, code: str) -> None:
    assert assemble(code_test(), PROMPT, answer) == code


@pytest.mark.parametrize(
    "answer",
    [
        "def total(xs)\n    return 1",
        "def total(xs):\nreturn 1",
        "def total(xs):\n    if xs:\n\treturn 1\n        return 2",
        "01=1:x>",
        "def total(xs):\n    return '",
        "def total(xs):\n    return 1 +",
    ],
)
def test_what_does_not_parse_is_told_without_a_guest_as_a_guest_tells_it(
    grader: CodeGrader, sandbox: Sandbox, answer: str
) -> None:
    got = grade(grader, answer)
    assert (got.layer, got.usage.wall_s, got.partial) == (Layer.LITERAL, 0.0, 0.0)
    ran = sandbox.run(
        Program(code=assemble(code_test(), PROMPT, answer), entry="total", calls=prepare(code_test(), sandbox).calls)
    )
    assert (got.status, got.error) == (ran.status, ran.error)
    assert got.parts == {"loads": 0.0, "runs": 0.0, "allowed": 1.0, "time": 0.0, "memory": 0.0}


def test_a_warning_of_the_parser_is_no_error_and_is_not_heard(grader: CodeGrader) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = grade(grader, "def total(xs):\n    return (1if xs else 1) * sum(xs)")
    assert (got.correct, got.status) == (True, Status.OK)


# HumanEval ---------------------------------------------------------------------------------------------------------


def test_no_humaneval_reference_is_found_wrong(
    humaneval: list[dict[str, Any]], tmp_path: Any, sandbox: Sandbox
) -> None:
    import json

    from coharness.config.sandbox import CodeTasks
    from coharness.tasks.code import CodeSource
    from coharness.tasks.formats import FORMATS

    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in humaneval), encoding="utf-8")
    source = CodeSource(CodeTasks(type="code", path="rows.jsonl"), tmp_path)
    # A deadline that a crowded machine keeps; what is asked is whether right code is found right.
    grader = CodeGrader(Sandbox(ladder=sandbox._climb(), limits=Limits(timeout_s=60.0)))
    wrong = []
    for seed in range(len(humaneval)):
        task = source.make("code", 1, seed)
        params = task.verifier.params
        test = CodeTest(entry=params["entry"], preamble=params["preamble"], test=params["test"], reference=task.answer)
        body = FORMATS["body"].extract(task.references["body"])
        assert body is not None
        for answer in (task.answer, f"```python\n{task.answer}\n```", body):
            got = grader.grade(test, params["prompt"], answer)
            if not got.correct:
                wrong.append((task.metadata["row"], got))
    assert wrong == []
