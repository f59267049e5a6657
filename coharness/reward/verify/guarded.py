"""Evaluation of answers by code that may hang, crash or be attacked: a literal gate, then a child process under a clock.

    answer ──▶ literal_gate ──refused──▶ incorrect
                   │
                   ▼            reply            ┌── score
              GuardedScorer ──▶ child process ──▶┤
                   ▲                             └── raised / no reply in time / died
                   └── second try in a fresh child, then a canary ──┘

Owns one long-lived child (`guarded_child.py`) in its own process group. Invariants: an answer reaches a child only through
the gate; a child that did not reply in time is killed by group and never used again; a failure counts against the answer
only when the same evaluator, asked for something known, is proved healthy right after; otherwise it is a BoundaryError. One
thread at a time drives a scorer.
"""

import json
import logging
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from coharness.records.errors import Boundary, BoundaryError

logger = logging.getLogger(__name__)

MAX_ANSWER_CHARS = 4_096
_MAX_REQUEST_BYTES = 60_000
"""Below a pipe's capacity, so that writing a request to a child that hangs cannot block."""
_MAX_REPLY_BYTES = 65_536
_PROGRAM = Path(__file__).with_name("guarded_child.py")

_LITERAL = re.compile(r"""[0-9a-zA-Z \n.,:;+*/^()=\[\]{}'"_<>|!?#-]*""")
_LATEX = re.compile(r"""[0-9a-zA-Z \n.,:;+*/^()=\[\]{}'"_<>|!?#\\$%&~-]*""")
_BANNED = ("__", "import", "lambda", "open(", "eval", "exec")
_ATTRIBUTE = re.compile(r"\.\s*[a-zA-Z_]")
_CALL = re.compile(r"([a-zA-Z_][a-zA-Z_0-9]*)\s*\(")
_CALL_OF_RESULT = re.compile(r"[)\]}]\s*\(")
_BINDS = re.compile(r":=|\bfor\b")
_FUNCTIONS = frozenset(
    {
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "coth", "sech", "csch", "exp", "log", "ln", "sqrt", "cbrt", "abs", "Abs"),
        *("factorial", "binomial", "gcd", "lcm", "floor", "ceiling", "min", "max", "Min", "Max", "sign"),
        *("erf", "erfc", "erfi", "gamma", "Ei", "Si", "Ci", "li", "Rational"),
    }
)


def literal_gate(answer: str, *, latex: bool = False) -> str | None:
    """Why `answer` must not reach an evaluator, None where it may.

    What passes looks like a number, a formula, a list or plain words: bounded in length, of a small set of characters, without
    what reaches into an interpreter: double underscores, words such as `import`, attribute access, calls of anything but a
    list of mathematical functions, and calls beside strings or names bound on the spot, which could smuggle the rest in.
    With `latex`, for an evaluator that parses formulas and hands numbers alone to Python, the characters of formulas pass
    too, and calls and full stops are free.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return f"the answer is longer than {MAX_ANSWER_CHARS} characters"
    if not (_LATEX if latex else _LITERAL).fullmatch(answer):
        return "the answer holds characters that a literal does not need"
    lowered = re.sub(r"\s+(?=\()", "", answer.lower())
    banned = next((text for text in _BANNED if text in lowered), None)
    if banned:
        return f"the answer holds {banned!r}"
    if latex:
        return None
    if _ATTRIBUTE.search(answer):
        return "the answer holds an attribute access"
    # getattr(x, "_" + "_class_" + "_") holds nothing that is banned; so calls are allowed by name.
    calls = _CALL.findall(answer)
    strange = next((name for name in calls if name not in _FUNCTIONS), None)
    if strange:
        return f"the answer calls {strange!r:.40}"
    if _CALL_OF_RESULT.search(answer):
        return "the answer calls the result of an expression"
    # sympy evaluates a string that it is given, and a bound name may stand for any function.
    if calls and ("'" in answer or '"' in answer or _BINDS.search(answer)):
        return "the answer calls a function beside a string or a name of its own"
    return None


class ChildKind(StrEnum):
    """What a child evaluates."""

    MATH = "math"
    "Mathematical equivalence, by math-verify."
    REASONING_GYM = "reasoning_gym"
    "The scorers of reasoning-gym."


_CANARIES: dict[ChildKind, Mapping[str, Any]] = {ChildKind.MATH: {"expected": "1/2", "answer": "0.5"}}
_EXTRA = {ChildKind.MATH: "math", ChildKind.REASONING_GYM: "run"}


class _NoReply(Exception):
    """The child hung or died; it has been killed."""


class _Raised(Exception):
    """The evaluator raised; the child goes on."""


class _Child:
    """One running child process."""

    def __init__(self, kind: ChildKind, start_s: float, memory_bytes: int) -> None:
        # Not -I: it would hide PYTHONHASHSEED, on which some datasets depend. -P and -s with an environment of our own
        # leave nothing else of the user's in it either; -B, because no file may be written.
        environment = {"PATH": os.defpath, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        environment["PYTHONHASHSEED"] = os.environ.get("PYTHONHASHSEED", "0")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-B", str(_PROGRAM), kind.value, str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        self._buffer = b""
        try:
            hello = self._read(start_s)
        except _NoReply as error:
            raise BoundaryError(Boundary.VERIFIER, f"the {kind} verifier's process did not start: {error}") from error
        if "ready" not in hello:
            self.kill()
            raise BoundaryError(
                Boundary.VERIFIER,
                f"the {kind} verifier cannot load its package: {hello.get('error')}; "
                f"install coharness-evolution[{_EXTRA[kind]}]",
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, request: Mapping[str, Any], timeout_s: float) -> float:
        # Not a number that counts up: an answer that writes frames of its own would guess it.
        token = secrets.token_hex(8)
        line = json.dumps({**request, "id": token}).encode() + b"\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            self.kill()
            raise _NoReply("its process has died") from error
        reply = self._read(timeout_s)
        if reply.get("id") != token:
            self.kill()
            raise _NoReply("it replied to something else")
        if "error" in reply:
            raise _Raised(str(reply["error"]))
        return float(reply["score"])

    def _read(self, timeout_s: float) -> dict[str, Any]:
        """One frame, within `timeout_s`; the child is killed where none comes."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([descriptor], [], [], left)[0] if left > 0 else []
            chunk = os.read(descriptor, _MAX_REPLY_BYTES) if ready else b""
            self._buffer += chunk
            if not chunk or len(self._buffer) > _MAX_REPLY_BYTES:
                self.kill()
                reason = "its process has died" if ready else f"no reply within {timeout_s:g} s"
                raise _NoReply("its reply is too long" if chunk else reason)
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            frame = json.loads(line)
        except ValueError as error:
            self.kill()
            raise _NoReply("its reply is no JSON") from error
        if not isinstance(frame, dict):
            self.kill()
            raise _NoReply("its reply is no frame")
        return frame

    def kill(self) -> None:
        if self._process.poll() is None:
            # It leads a group of its own and has not been waited for, so the number still means this group.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    # A request that was never read is still in the buffer; nobody waits for it.
                    continue


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of evaluating one answer."""

    score: float
    "What the evaluator said; 0 where the answer defeated it."
    feedback: str = ""


class GuardedScorer:
    """Evaluates answers of one kind in a child process that is started when it is first needed."""

    def __init__(
        self,
        kind: ChildKind,
        *,
        timeout_s: float = 5.0,
        start_s: float = 60.0,
        memory_bytes: int = 4 * 2**30,
    ) -> None:
        """`timeout_s` bounds one evaluation, `start_s` the loading of the packages, `memory_bytes` the address space."""
        self._kind = kind
        self._timeout_s = timeout_s
        self._start_s = start_s
        self._memory_bytes = memory_bytes
        self._child: _Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the child, None where none runs."""
        return None if self._child is None else self._child.pid

    def score(self, request: Mapping[str, Any]) -> Judgement:
        """Evaluate `request`: `expected` and `answer`, for reasoning-gym also `dataset`, `config` and `seed`.

        The answer must have passed the gate.

        Raises:
            BoundaryError: the evaluator cannot be started, or failed on this request and on a known good one as well.
        """
        if len(json.dumps(request)) > _MAX_REQUEST_BYTES:
            raise BoundaryError(
                Boundary.VERIFIER, f"a request to the {self._kind} verifier is over {_MAX_REQUEST_BYTES} bytes"
            )
        reason = ""
        for _ in range(2):
            try:
                return Judgement(score=self._call(request))
            except _Raised as error:
                reason = f"the verifier raised {error}"
                break
            except _NoReply as error:
                reason = f"the verifier gave up: {error}"
                logger.info("%s verifier: %s; starting a fresh process", self._kind, error)
        try:
            self._call(_CANARIES.get(self._kind) or {**request, "answer": request["expected"]})
        except (_Raised, _NoReply) as error:
            raise BoundaryError(
                Boundary.VERIFIER, f"{reason}; and it fails on a known good answer too: {error}"
            ) from error
        return Judgement(score=0.0, feedback=reason)

    def _call(self, request: Mapping[str, Any]) -> float:
        if self._child is None:
            self._child = _Child(self._kind, self._start_s, self._memory_bytes)
        try:
            return self._child.call(request, self._timeout_s)
        except _NoReply:
            self._child = None
            raise

    def close(self) -> None:
        """End the child, by its id."""
        if self._child is not None:
            self._child.kill()
            self._child = None
