"""Whatever a format writes, it reads back; what breaks a format has no answer."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.tasks.builtin import FAMILY_NAMES, BuiltinSource
from coharness.tasks.formats import CUED_FORMATS, FORMATS, Solution

WORDS = st.text(alphabet=string.ascii_lowercase + string.digits, min_size=1, max_size=20)
TEXTS = st.text(alphabet=string.printable + "äπ→", max_size=60).map(str.strip)
SOURCE = BuiltinSource()


def carried(name: str, answer: str, **parts: str) -> str | None:
    return FORMATS[name].extract(FORMATS[name].render(Solution(answer=answer, **parts)))


@given(answer=WORDS, subject=WORDS, trace=WORDS, backward=WORDS)
def test_cued_formats_read_back_any_word(answer: str, subject: str, trace: str, backward: str) -> None:
    for name in CUED_FORMATS:
        assert carried(name, answer, subject=subject, trace=trace, backward_trace=backward) == answer


@given(answer=TEXTS.filter(lambda t: "Answer:" not in t and "answer>" not in t), steps=TEXTS)
def test_text_formats_read_back_any_text_without_their_own_marks(answer: str, steps: str) -> None:
    for name in ("answer_line", "tagged", "worked"):
        assert carried(name, answer, steps=steps) == answer


@given(answer=TEXTS.filter(bool) | st.lists(st.sampled_from(["```", "`````", "x = 1", "", "    ```py"])).map("\n".join))
def test_a_block_carries_any_code_even_fences(answer: str) -> None:
    answer = answer.replace("\r", "").strip()
    if answer:
        assert carried("fenced", answer) == answer


@given(
    blocks=st.lists(st.sampled_from(["return 1", "x = 2\n    return x", "pass"]), min_size=1, max_size=3),
    talk=st.lists(st.text(alphabet=string.ascii_letters + " `#:.(){}", max_size=30), min_size=4, max_size=4),
    fence=st.sampled_from(["```", "```python", "````py", "  ```Python3"]),
)
def test_of_several_blocks_the_last_one_counts_whatever_is_said_around_them(
    blocks: list[str], talk: list[str], fence: str
) -> None:
    talk = [line.replace("```", "") for line in talk]
    end = "".join(c for c in fence if c in " `")
    text = talk[-1] + "".join(f"\n{fence}\n{block}\n{end}\n{line}" for block, line in zip(blocks, talk, strict=False))
    for name in ("fenced", "body"):
        assert FORMATS[name].extract(text) == blocks[-1]


@given(answer=TEXTS.filter(lambda t: "\\" not in t))
def test_boxed_reads_back_any_braces(answer: str) -> None:
    assert carried("boxed", answer) == answer


@given(answer=TEXTS, before=TEXTS, after=TEXTS.filter(lambda t: "\\boxed{" not in t))
def test_boxed_reads_the_last_box_whatever_stands_around_it(answer: str, before: str, after: str) -> None:
    if "\\" not in answer:
        assert (
            FORMATS["boxed"].extract(f"{before} {FORMATS['boxed'].render(Solution(answer=answer))} {after}") == answer
        )


@given(family=st.sampled_from(FAMILY_NAMES), level=st.integers(1, 8), seed=st.integers(0, 2**63 - 1))
def test_references_of_the_built_in_families_read_back(family: str, level: int, seed: int) -> None:
    task = SOURCE.make(family, level, seed)
    assert set(task.references) == set(CUED_FORMATS)
    for name, reference in task.references.items():
        assert FORMATS[name].extract(reference) == task.answer


@given(completion=TEXTS)
def test_an_answer_that_is_read_has_no_white_space_around_it(completion: str) -> None:
    for answer_format in FORMATS.values():
        answer = answer_format.extract(completion)
        assert answer is None or answer == answer.strip()


@pytest.mark.parametrize(
    ("name", "completion", "answer"),
    [
        ("plain", "  ", None),
        ("plain", " 42\n", "42"),
        ("trace", "1010", None),
        ("trace", "1010:", None),
        ("trace", "1010:1:0", "1:0"),
        ("mirror", "dcba", "abcd"),
        ("doubled", "1122", "12"),
        ("doubled", "112", None),
        ("doubled", "1123", None),
        ("stated", "So the answer is: 4.", "4"),
        ("stated", "The answer is 3. No, the answer is -3.5.", "-3.5"),
        ("stated", "The answer is", None),
        ("answer_line", "I think so.", None),
        ("answer_line", "Answer: 3? No.\nAnswer: 4", "4"),
        ("answer_line", "Answer: 1 2\n3 4", "1 2\n3 4"),
        ("boxed", "so \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("boxed", "\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
        ("boxed", "\\boxed{1", None),
        ("boxed", "1", None),
        ("tagged", "<answer>1</answer> or <answer> 2 </answer>", "2"),
        ("tagged", "<answer>1", None),
        ("tagged", "1</answer>", None),
        ("worked", "2 + 2 = 4\nAnswer: 4", "4"),
        ("fenced", "def f():\n    return 1", None),
        ("fenced", "```python\nreturn 1", None),
        ("fenced", "```python\n\n```", None),
        ("fenced", "```python\nreturn 1```", None),
        ("fenced", "```python\nreturn 1\n```", "return 1"),
        ("fenced", "```\r\nreturn 1\r\n```\r\n", "return 1"),
        ("fenced", "```python\nreturn 1\n```\nIt prints:\n```text\n1\n```", "return 1"),
        ("fenced", "```python\nreturn 1\n```\nor\n```python\nreturn 2", "return 1"),
        ("fenced", "```js\nreturn 1\n```", None),
        ("fenced", "```python\nx = 1\n```python\nreturn x\n```", "x = 1\n```python\nreturn x"),
        ("fenced", "````python\n```\nreturn 1\n````", "```\nreturn 1"),
        ("fenced", "see ```x``` for it", None),
        ("body", "    t = 1\n    return t\n", "t = 1\n    return t"),
        ("body", "Sure:\n```python\n    return 1\n```", "return 1"),
        ("body", "```python\nreturn 1", None),
        ("body", "  \n", None),
    ],
)
def test_how_completions_are_read(name: str, completion: str, answer: str | None) -> None:
    assert FORMATS[name].extract(completion) == answer


def test_cues_of_the_built_in_formats_differ() -> None:
    assert "".join(FORMATS[name].cue for name in CUED_FORMATS) == "=><~_^!"
    assert all(FORMATS[name].name == name and FORMATS[name].instruction for name in FORMATS)
