"""The verifier of a run: sends each answer to what its task's VerifierSpec names.

Owns the guarded children, at most one of each kind, and the sandbox, all started when first needed. Invariants: an answer
equal to the expected one is correct without any evaluator being asked (but for a user's own score and a test of code, which
always decide); a score is a finite number in [0, 1] or a BoundaryError.
"""

import math
import threading
from collections.abc import Mapping

from coharness.config.sandbox import SandboxSection
from coharness.records.errors import Boundary, BoundaryError, boundary
from coharness.records.protocols import Check
from coharness.records.task import VerifierKind, VerifierSpec
from coharness.reward.verify.code import CodeVerifier
from coharness.reward.verify.guarded import ChildKind, GuardedScorer, literal_gate
from coharness.reward.verify.text import check_choice, check_exact, check_numeric
from coharness.tasks.sources import ScoreFunction


class VerifierRouter:
    """Checks answers; satisfies `coharness.records.protocols.Verifier`.

    Threads may share it: users' score functions then run side by side, children and sandbox take one answer at a time.
    """

    def __init__(
        self,
        scorers: Mapping[str, ScoreFunction] | None = None,
        *,
        timeout_s: float = 5.0,
        sandbox: SandboxSection | None = None,
    ) -> None:
        """`scorers` are users' score functions by family (`TaskSources.scorers`); `timeout_s` bounds a guarded evaluation.

        `sandbox` says where code may run (`reward.sandbox` of a run's config; its defaults where left out).
        """
        self._scorers = dict(scorers or {})
        self._guarded = {kind: GuardedScorer(kind, timeout_s=timeout_s) for kind in ChildKind}
        self._code = CodeVerifier(sandbox or SandboxSection())
        self._one_by_one = threading.Lock()

    def check(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
        """Check one answer.

        Raises:
            BoundaryError: the verifier itself failed; says nothing about the answer.
        """
        if spec.kind is VerifierKind.PYTHON:
            return self._check_python(spec, question, expected, answer)
        if spec.kind is VerifierKind.CODE:
            with self._one_by_one:
                return self._code.check(spec, expected, answer)
        exact = check_exact(expected, answer)
        if exact.correct:
            return exact
        match spec.kind:
            case VerifierKind.EXACT:
                return exact
            case VerifierKind.NUMERIC:
                return check_numeric(expected, answer, spec.params)
            case VerifierKind.CHOICE:
                return check_choice(expected, answer, spec.params)
            case VerifierKind.MATH:
                return self._check_guarded(ChildKind.MATH, spec, expected, answer)
            case VerifierKind.REASONING_GYM:
                return self._check_guarded(ChildKind.REASONING_GYM, spec, expected, answer)

    def _check_guarded(self, kind: ChildKind, spec: VerifierSpec, expected: str, answer: str) -> Check:
        refused = literal_gate(answer, latex=kind is ChildKind.MATH)
        if refused:
            return Check(correct=False, partial=0.0, feedback=refused)
        with self._one_by_one:
            judged = self._guarded[kind].score({**spec.params, "expected": expected, "answer": answer})
        score = _in_unit(judged.score, f"the {kind} verifier")
        return Check(correct=score == 1.0, partial=score, feedback=judged.feedback or _feedback(score))

    def _check_python(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
        family = str(spec.params.get("family"))
        if family not in self._scorers:
            raise BoundaryError(
                Boundary.VERIFIER,
                f"no score function for family {family!r}; give VerifierRouter the `scorers` of the run's TaskSources",
            )
        with boundary(Boundary.VERIFIER):
            value = self._scorers[family](question, expected, answer)
        score = _in_unit(value, f"the score function of {family}")
        return Check(correct=score == 1.0, partial=score, feedback=_feedback(score))

    def close(self) -> None:
        """End the guarded children and the sandbox."""
        for scorer in self._guarded.values():
            scorer.close()
        self._code.close()


def _in_unit(value: object, who: str) -> float:
    if isinstance(value, bool | int | float) and math.isfinite(value) and 0 <= value <= 1:
        return float(value)
    raise BoundaryError(Boundary.VERIFIER, f"{who} gave {value!r:.80}; a score is a finite number in [0, 1]")


def _feedback(score: float) -> str:
    return "" if score == 1.0 else "differs from the expected answer"
