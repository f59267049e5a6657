"""Grades of candidates for code tasks: the answer's text becomes a program, its values are examined, nothing else counts.

Owns one `Sandbox` and the examinations prepared so far. One thread at a time drives a grader.
"""

import ast
import re
import textwrap
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
        program = Program(code=assemble(test, prompt, answer), entry=test.entry, calls=examination.calls)
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
    blocks = _FENCE.findall(answer)
    defines = re.compile(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(test.entry)}\b", re.MULTILINE)
    code = next((block for block in blocks if defines.search(block)), blocks[0] if blocks else answer)
    if defines.search(code):
        return f"{test.preamble}\n{code}\n"
    code, start = code.strip("\n"), prompt.rstrip()
    # Answers are stripped, and with them the indentation of a body's first line; and some bodies come without any.
    bodies = [code] if code[:1] in (" ", "\t") else [f"    {code}", textwrap.indent(code, "    ")]
    whole = [f"{start}\n{body}\n" for body in bodies]
    return next((program for program in whole if _ends_with(test.entry, program)), whole[0])


def _ends_with(entry: str, program: str) -> bool:
    """Whether `program` parses and its last statement is the function `entry`, so that all of a body is inside it."""
    if len(program) > _MAX_CHARS:
        return False
    try:
        last = ast.parse(program).body[-1]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef) and last.name == entry


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
