"""Grades of candidates for code tasks: the answer's text becomes a program, its values are examined, nothing else counts.

Owns one `Sandbox` and the examinations prepared so far. One thread at a time drives a grader.
"""

import ast
import re
import textwrap
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from coharness.records.errors import Boundary, BoundaryError
from coharness.reward.sandbox.examination import CodeTest, Examination, prepare
from coharness.reward.sandbox.ladder import Sandbox
from coharness.reward.sandbox.program import Layer, Limits, Program, Status, Usage

_FENCE = re.compile(r"```[a-zA-Z0-9_+-]*[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
_LOAD_ERRORS = frozenset(
    {"SyntaxError", "IndentationError", "TabError", "NameError", "ModuleNotFoundError", "ImportError"}
)
_MAX_CHARS = 100_000
_UNTOLD = (ValueError, RecursionError, MemoryError)
"""What parsing may end in that says nothing of the program's syntax."""
_KEPT = 512
"""Examinations kept; each holds a test's calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What came of one candidate."""

    correct: bool
    partial: float
    "Share of the test's verdicts that hold."
    status: Status
    error: str
    "Type of the first exception; empty where none is known."
    layer: Layer
    usage: Usage
    limits: Limits
    feedback: str
    "One sentence that tells nothing of the test."

    @property
    def parts(self) -> Mapping[str, float]:
        """Parts of a reward, each in [0, 1].

        `loads`, it is Python that defines the function; `runs`, it gave a plain value for every call; `allowed`, it tried nothing
        forbidden; `time` and `memory`, the shares left unused, 0 where it does not run. A layer that cannot tell how much
        memory was used counts as having used none.
        """
        runs = self.status is Status.OK
        memory = self.usage.memory_bytes or 0
        return {
            "loads": float(runs or (self.status is Status.ERROR and self.error not in _LOAD_ERRORS)),
            "runs": float(runs),
            "allowed": float(self.status is not Status.POLICY),
            "time": max(0.0, 1.0 - self.usage.wall_s / self.limits.timeout_s) * runs,
            "memory": max(0.0, 1.0 - memory / self.limits.memory_bytes) * runs,
        }


class CodeGrader:
    """Grades candidates in a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._prepared: OrderedDict[CodeTest, Examination] = OrderedDict()

    def grade(self, test: CodeTest, prompt: str, answer: str) -> Grade:
        """Grade one answer.

        Args:
            test: the task's test.
            prompt: the beginning of the function as the task gives it, for answers that hold the body alone.
            answer: what a completion said: a function, a body, or either in a fence.

        Raises:
            BoundaryError: the sandbox failed, twice; says nothing about the answer.
            TaskError: the test itself cannot be used.
            PreflightError: no layer that may be used works here.
        """
        examination = self._prepare(test)
        code = assemble(test, prompt, answer)
        error = _syntax_error(code)
        if error:
            # Most of what an untrained policy writes: nothing of it would run, and a guest takes a hundred times as long.
            return Grade(
                correct=False,
                partial=0.0,
                status=Status.ERROR,
                error=error,
                layer=Layer.LITERAL,
                usage=Usage(wall_s=0.0),
                limits=self._sandbox.limits,
                feedback=_feedback(Status.ERROR, error, 0, examination.num_verdicts),
            )
        program = Program(code=code, entry=test.entry, calls=examination.calls)
        outcome = self._sandbox.run(program)
        if outcome.status is Status.INFRA:
            raise BoundaryError(Boundary.VERIFIER, f"the sandbox failed twice: {outcome.detail}")
        # A program that was ended early has not passed, whatever it had answered by then.
        usable = outcome.results if outcome.status in (Status.OK, Status.ERROR) else ()
        verdicts = examination.verdicts(usable, self._sandbox)
        if verdicts is None:
            raise BoundaryError(Boundary.VERIFIER, "the sandbox failed while the test judged the values")
        held = sum(verdicts)
        return Grade(
            correct=held == len(verdicts),
            partial=held / len(verdicts),
            status=outcome.status,
            error=outcome.error,
            layer=outcome.layer,
            usage=outcome.usage,
            limits=self._sandbox.limits,
            feedback=_feedback(outcome.status, outcome.error, held, len(verdicts)),
        )

    def _prepare(self, test: CodeTest) -> Examination:
        if test in self._prepared:
            self._prepared.move_to_end(test)
        else:
            self._prepared[test] = prepare(test, self._sandbox)
            if len(self._prepared) > _KEPT:
                self._prepared.popitem(last=False)
        return self._prepared[test]

    def close(self) -> None:
        """End the sandbox's processes."""
        self._sandbox.close()


def assemble(test: CodeTest, prompt: str, answer: str) -> str:
    """The candidate's program: what the task gives, then the function that the answer holds or completes."""
    # Python may hold fences, in a docstring; a text with fences around its code is no Python.
    blocks = [] if _tree(answer) is not None else _FENCE.findall(answer)
    defines = re.compile(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(test.entry)}\b", re.MULTILINE)
    code = next((block for block in blocks if defines.search(block)), blocks[0] if blocks else answer)
    if defines.search(code):
        return f"{test.preamble}\n{code}\n"
    code, start = code.strip("\n"), prompt.rstrip()
    whole = [f"{start}\n{body}\n" for part in (code, _until_margin(code)) for body in _bodies(part)]
    return next((program for program in whole if _ends_with(test.entry, program)), whole[0])


def _bodies(code: str) -> list[str]:
    """How the lines of a body may have been meant to be indented, the likeliest first."""
    if code[:1] in (" ", "\t"):
        return [code]
    # Answers are stripped, and with them the indentation of a body's first line; and some bodies come without any.
    later = [line[: len(line) - len(line.lstrip())] for line in code.split("\n")[1:] if line.strip()]
    least = min(later, key=len, default="")
    moved = textwrap.indent(textwrap.dedent(f"{least}{code}"), "    ")
    return [f"    {code}", textwrap.indent(code, "    "), moved]


def _until_margin(code: str) -> str:
    """The lines before the first one, not counting the first of all, that stands at the left margin: what follows is talk."""
    lines = code.split("\n")
    end = next((i for i, line in enumerate(lines) if i and line.strip() and not line[0].isspace()), len(lines))
    return "\n".join(lines[:end])


def _ends_with(entry: str, program: str) -> bool:
    """Whether `program` parses and its last statement is the function `entry`, so that all of a body is inside it."""
    tree = _tree(program)
    last = tree.body[-1] if tree is not None and tree.body else None
    return isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef) and last.name == entry


def _syntax_error(program: str) -> str:
    """Name of the error that this interpreter's parser finds in a program; empty where it finds none or cannot tell."""
    try:
        _parsed(program)
    except SyntaxError as error:
        return type(error).__name__
    except _UNTOLD:
        return ""
    return ""


def _tree(program: str) -> ast.Module | None:
    """What a program parses to; None where it does not, or is too long to be tried."""
    try:
        return _parsed(program)
    except (SyntaxError, *_UNTOLD):
        return None


def _parsed(program: str) -> ast.Module:
    if len(program) > _MAX_CHARS:
        raise ValueError(f"{len(program)} characters are too many to parse here")
    with warnings.catch_warnings():
        # A policy's style is nobody's business, and where warnings are errors it would be called an error of syntax.
        warnings.simplefilter("ignore")
        return ast.parse(program)


def _feedback(status: Status, error: str, held: int, total: int) -> str:
    if status is Status.OK:
        return "" if held == total else "some tests fail"
    return {
        Status.ERROR: f"the code raised {error or 'an exception'}",
        Status.TIMEOUT: "the code ran too long",
        Status.MEMORY: "the code used too much memory",
        Status.OUTPUT_LIMIT: "the code wrote too much",
        Status.POLICY: "the code tried something that is forbidden",
        Status.CRASHED: "the code's process ended by itself",
    }.get(status, "the code cannot be run here")
