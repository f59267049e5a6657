"""The verifier of code: a grader over the run's sandbox, made when the first answer comes.

Owns the sandbox of one process. A layer that works nowhere, a test that cannot be used and a sandbox that failed twice are
failures of the verifier; whatever the answer does is a check.
"""

from coharness.config.sandbox import SandboxSection
from coharness.records.errors import Boundary, boundary
from coharness.records.protocols import Check
from coharness.records.task import VerifierSpec
from coharness.reward.sandbox import CodeGrader, CodeTest, Grade, Layer, Limits, Sandbox


def make_sandbox(section: SandboxSection) -> Sandbox:
    """The sandbox that a config asks for; nothing is started yet."""
    return Sandbox(
        minimum=Layer(section.minimum),
        unsafe=section.unsafe,
        limits=Limits(timeout_s=section.timeout_s, memory_bytes=section.memory_mb * 2**20),
        spares=section.spares,
    )


class CodeVerifier:
    """Checks code against its task's test. One thread at a time."""

    def __init__(self, section: SandboxSection) -> None:
        self._section = section
        self._grader: CodeGrader | None = None

    def grade(self, spec: VerifierSpec, expected: str, answer: str) -> Grade:
        """Grade one answer: `spec.params` holds entry, prompt, preamble and test; `expected` is the reference.

        Raises:
            BoundaryError: the sandbox or the test failed; says nothing about the answer.
        """
        with boundary(Boundary.VERIFIER):
            if self._grader is None:
                self._grader = CodeGrader(make_sandbox(self._section))
            params = {name: str(spec.params[name]) for name in ("entry", "preamble", "test")}
            return self._grader.grade(CodeTest(**params, reference=expected), str(spec.params["prompt"]), answer)

    def check(self, spec: VerifierSpec, expected: str, answer: str) -> Check:
        """As `grade`, as what every verifier says."""
        grade = self.grade(spec, expected, answer)
        parts = {f"code/{name}": value for name, value in grade.parts.items()}
        return Check(correct=grade.correct, partial=grade.partial, feedback=grade.feedback, parts=parts)

    def close(self) -> None:
        """End the sandbox's processes."""
        if self._grader is not None:
            self._grader.close()
            self._grader = None
