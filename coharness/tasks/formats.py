"""Answer formats: how a completion carries its answer, as one renderer and one reader that undo each other.

A format is named by one gene of a harness, so which way of answering suits a family is found by evolution. Invariant:
`extract(render(solution)) == solution.answer` for every format and every answer without surrounding white space (the
boxed format also needs braces or backslashes that LaTeX could write; a format that `is_ending` gives the end of the answer).
`extract` never looks at the expected answer and never guesses: a completion that breaks its format has no answer (None).

Three groups. The *cued* formats are for a small raw base that reads characters: one cue character after the question says
which format is wanted. Echo, filler and doubled cost tokens and carry nothing; they are there so that a search over
formats has something to reject. The *text* formats are for chat models, asked for by an instruction. The *code* formats carry
Python, fenced as chat models write it, or as the body alone of a function that the question begins.
"""

from collections.abc import Callable
from dataclasses import dataclass

from coharness.tasks.fences import has_fence, last_block, write_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a reference is rendered from; each format uses the parts it needs."""

    answer: str
    subject: str = ""
    "The word the question is about."
    trace: str = ""
    "Running state of the computation, left to right."
    backward_trace: str = ""
    "The same from the right end."
    steps: str = ""
    "A solution in prose, before the answer."
    body: str = ""
    "The answer without its beginning, where the question holds that: a function's body."


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """One way to answer."""

    name: str
    cue: str
    "Put after the question for a raw base; the completion begins behind it."
    instruction: str
    "Put into the prompt of a chat base."
    render: Callable[[Solution], str]
    "A reference completion."
    extract: Callable[[str], str | None]
    "The answer a completion carries, stripped; None where it breaks the format."
    is_ending: bool = False
    "Whether it carries only the end of the answer, for a verifier that knows the beginning."

    def is_faithful(self, read: str | None, answer: str) -> bool:
        """Whether what was read of a reference is all of the answer that this format carries."""
        if self.is_ending:
            return bool(read) and answer.endswith(read or "")
        return read == answer


# Cued formats -------------------------------------------------------------------------------------------------------


def _render_plain(solution: Solution) -> str:
    return solution.answer


def _extract_plain(completion: str) -> str | None:
    return completion.strip() or None


def _render_trace(solution: Solution) -> str:
    return f"{solution.trace}:{solution.answer}"


def _render_backward(solution: Solution) -> str:
    return f"{solution.backward_trace}:{solution.answer}"


def _render_echo(solution: Solution) -> str:
    return f"{solution.subject}:{solution.answer}"


def _render_filler(solution: Solution) -> str:
    return f"{'.' * len(solution.subject)}:{solution.answer}"


def _extract_after_colon(completion: str) -> str | None:
    # The first colon, not the last: what stands behind a second one is a second try, and only the first answer counts.
    _, _, answer = completion.partition(":")
    return answer.strip() or None


def _render_mirror(solution: Solution) -> str:
    return solution.answer[::-1]


def _extract_mirror(completion: str) -> str | None:
    return completion.strip()[::-1] or None


def _render_doubled(solution: Solution) -> str:
    return "".join(character * 2 for character in solution.answer)


def _extract_doubled(completion: str) -> str | None:
    text = completion.strip()
    return text[::2] if text and text[::2] == text[1::2] else None


# Text formats -------------------------------------------------------------------------------------------------------

_ANSWER = "Answer:"
_STATED, _IS = "The answer is", "answer is"
_BOX = "\\boxed{"
_OPEN, _CLOSE = "<answer>", "</answer>"


def _render_answer_line(solution: Solution) -> str:
    return f"{_ANSWER} {solution.answer}"


def _render_worked(solution: Solution) -> str:
    return f"{solution.steps}\n{_ANSWER} {solution.answer}"


def _extract_answer_line(completion: str) -> str | None:
    _, marker, answer = completion.rpartition(_ANSWER)
    return answer.strip() if marker else None


def _render_stated(solution: Solution) -> str:
    return f"{_STATED} {solution.answer}."


def _extract_stated(completion: str) -> str | None:
    _, marker, rest = completion.replace("answer is:", _IS).rpartition(_IS)
    answer = rest.strip().partition("\n")[0].strip().removesuffix(".")
    return answer.strip() if marker and answer else None


def _closing_brace(text: str) -> int:
    r"""Index of the brace that closes a group opened just before `text`, -1 where none does; `\{` and `\}` are text."""
    depth, i = 1, 0
    while i < len(text):
        if text[i] == "\\":
            i += 1
        elif text[i] in "{}":
            depth += 1 if text[i] == "{" else -1
            if depth == 0:
                return i
        i += 1
    return -1


def _is_balanced(text: str) -> bool:
    return _closing_brace(text + "}") == len(text)


def _unescape_braces(text: str) -> str:
    return text.replace("\\{", "{").replace("\\}", "}")


def _render_boxed(solution: Solution) -> str:
    answer = solution.answer
    if not _is_balanced(answer):
        answer = answer.replace("{", "\\{").replace("}", "\\}")
    return f"{_BOX}{answer}}}"


def _extract_boxed(completion: str) -> str | None:
    _, marker, rest = completion.rpartition(_BOX)
    end = _closing_brace(rest) if marker else -1
    if end < 0:
        return None
    answer = rest[:end].strip()
    # Braces were escaped only because the answer's own do not pair up; LaTeX such as \{1,2\} stays as it was written.
    plain = _unescape_braces(answer)
    return answer if _is_balanced(plain) else plain


def _render_tagged(solution: Solution) -> str:
    return f"{_OPEN}{solution.answer}{_CLOSE}"


def _extract_tagged(completion: str) -> str | None:
    _, opened, rest = completion.rpartition(_OPEN)
    answer, closed, _ = rest.partition(_CLOSE)
    return answer.strip() if opened and closed else None


# Code formats -------------------------------------------------------------------------------------------------------


def _render_fenced(solution: Solution) -> str:
    return write_block(solution.answer)


def _extract_fenced(completion: str) -> str | None:
    return (last_block(completion) or "").strip() or None


def _render_body(solution: Solution) -> str:
    return solution.body


def _extract_body(completion: str) -> str | None:
    # Chat models fence whatever is code; then the block is the body, and the rest is talk.
    body = last_block(completion) if has_fence(completion) else completion
    return (body or "").strip() or None


_ALL = (
    AnswerFormat(
        name="plain",
        cue="=",
        instruction="Reply with the answer alone.",
        render=_render_plain,
        extract=_extract_plain,
    ),
    AnswerFormat(
        name="trace",
        cue=">",
        instruction="Write the running state after each character from the left, then a colon, then the answer.",
        render=_render_trace,
        extract=_extract_after_colon,
    ),
    AnswerFormat(
        name="backward",
        cue="<",
        instruction="Write the running state after each character from the right end, then a colon, then the answer.",
        render=_render_backward,
        extract=_extract_after_colon,
    ),
    AnswerFormat(
        name="echo",
        cue="~",
        instruction="Copy the word, then write a colon, then the answer.",
        render=_render_echo,
        extract=_extract_after_colon,
    ),
    AnswerFormat(
        name="filler",
        cue="_",
        instruction="Write one full stop for each character of the word, then a colon, then the answer.",
        render=_render_filler,
        extract=_extract_after_colon,
    ),
    AnswerFormat(
        name="mirror",
        cue="^",
        instruction="Reply with the answer alone, written backwards.",
        render=_render_mirror,
        extract=_extract_mirror,
    ),
    AnswerFormat(
        name="doubled",
        cue="!",
        instruction="Reply with the answer alone, each of its characters written twice.",
        render=_render_doubled,
        extract=_extract_doubled,
    ),
    AnswerFormat(
        name="answer_line",
        cue="\n",
        instruction='End with the answer on a last line of its own: "Answer: " and then the answer.',
        render=_render_answer_line,
        extract=_extract_answer_line,
    ),
    AnswerFormat(
        name="stated",
        cue="\n",
        instruction='End with the sentence "The answer is ..." with the answer in place of the dots.',
        render=_render_stated,
        extract=_extract_stated,
    ),
    AnswerFormat(
        name="boxed",
        cue="\n",
        instruction="Put the answer into \\boxed{}.",
        render=_render_boxed,
        extract=_extract_boxed,
    ),
    AnswerFormat(
        name="tagged",
        cue="\n",
        instruction="Put the answer between <answer> and </answer>.",
        render=_render_tagged,
        extract=_extract_tagged,
    ),
    AnswerFormat(
        name="worked",
        cue="\n",
        instruction='Work it out step by step, then end with a last line of "Answer: " and the answer.',
        render=_render_worked,
        extract=_extract_answer_line,
    ),
    AnswerFormat(
        name="fenced",
        cue="\n",
        instruction="Write the whole function in one block that begins with ```python and ends with ```.",
        render=_render_fenced,
        extract=_extract_fenced,
    ),
    AnswerFormat(
        name="body",
        cue="\n    ",
        instruction="Go on where the function ends: write the lines of its body alone.",
        render=_render_body,
        extract=_extract_body,
        is_ending=True,
    ),
)

FORMATS: dict[str, AnswerFormat] = {answer_format.name: answer_format for answer_format in _ALL}
"""Every answer format by its name."""

CUED_FORMATS = ("plain", "trace", "backward", "echo", "filler", "mirror", "doubled")
"""Formats of the built-in families, the plain one first."""

CODE_FORMATS = ("fenced", "body", "answer_line", "tagged")
"""Formats of functions to write."""


def render_references(names: tuple[str, ...], solution: Solution) -> dict[str, str]:
    """Format name -> reference completion of `solution`, in the order of `names`."""
    return {name: FORMATS[name].render(solution) for name in names}
