"""Runs the attempts in one layer and says what became of each; `coharness doctor --sandbox` and the tests both use it.

`verdicts.json` holds what is expected of each layer, and is the promise that this package makes. For the unsafe layer it says
what must not be expected: those rows show that the battery can tell.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from coharness.records.errors import PreflightError
from coharness.reward.sandbox.abuse import files, grading, processes
from coharness.reward.sandbox.abuse.attempt import Attempt, Goal, Verdict
from coharness.reward.sandbox.abuse.bait import SECRET_TEST, Bait, lay_out
from coharness.reward.sandbox.examination import prepare
from coharness.reward.sandbox.ladder import LayerRunner, Sandbox, make_runner, why_unusable
from coharness.reward.sandbox.program import Call, Layer, Limits, Outcome, Program, Returned, Status

ATTEMPTS: tuple[Attempt, ...] = tuple(
    sorted(processes.ATTEMPTS + files.ATTEMPTS + grading.ATTEMPTS, key=lambda attempt: attempt.number)
)
"""All attempts, by number."""
LIMITS = Limits(timeout_s=1.0)
_SLACK_S = 10.0
"""How much later than its limit a program may be reported as ended, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one attempt in one layer."""

    attempt: Attempt
    layer: Layer
    verdict: Verdict
    expected: Verdict
    evidence: str
    "How the programs ended; what was got, where something was."


def expected_verdict(layer: Layer, number: int) -> Verdict:
    """The committed verdict of an attempt in a layer."""
    return _table()[_column(layer)][number - 1]


@cache
def _table() -> dict[str, tuple[Verdict, ...]]:
    text = resources.files(__package__).joinpath("verdicts.json").read_text(encoding="utf-8")
    rows = json.loads(text)["attempts"]
    columns = [name for name in rows[0] if name not in ("number", "name")]
    return {name: tuple(Verdict(row[name]) for row in rows) for name in columns}


def _column(layer: Layer) -> str:
    # Under root even the unsafe layer runs as a uid of its own, which is worth something.
    return "unsafe, not root" if layer is Layer.UNSAFE and os.geteuid() != 0 else layer.value


def run_battery(layer: Layer) -> Iterator[Finding]:
    """All attempts in one layer.

    Raises:
        PreflightError: the layer does not work here.
    """
    runner = make_runner(layer)
    try:
        reason = why_unusable(runner)
        if reason is not None:
            raise PreflightError(f"the sandbox layer {layer} does not work here: {reason}")
        with lay_out() as bait:
            for attempt in ATTEMPTS:
                yield run_attempt(runner, attempt, bait)
    finally:
        runner.close()


def run_attempt(runner: LayerRunner, attempt: Attempt, bait: Bait) -> Finding:
    """One attempt: the worst verdict of its programs; unsupported only where no program ran."""
    judged = [_judge(runner, attempt, code, bait) for code in attempt.programs]
    verdicts = [verdict for verdict, _ in judged]
    order = (Verdict.NOT_CONTAINED, Verdict.CONTAINED, Verdict.UNSUPPORTED)
    return Finding(
        attempt=attempt,
        layer=runner.layer,
        verdict=next(verdict for verdict in order if verdict in verdicts),
        expected=expected_verdict(runner.layer, attempt.number),
        evidence="; ".join(dict.fromkeys(evidence for _, evidence in judged)),
    )


def _judge(runner: LayerRunner, attempt: Attempt, code: str, bait: Bait) -> tuple[Verdict, str]:
    if attempt.goal is Goal.GRADE:
        return _judge_grade(runner, code, bait)
    if "def attack" in code:
        program = Program(code=code, entry="attack", calls=(Call(args=(dict(bait.told),)),))
    else:
        program = Program(code=code.format(touch=bait.told["touch"]))
    began = time.monotonic()
    outcome = runner.run(program, LIMITS)
    took_s = time.monotonic() - began
    left = bait.left_behind()
    if left:
        return Verdict.NOT_CONTAINED, f"left behind: {left}"
    if outcome.status is Status.UNSUPPORTED:
        return Verdict.UNSUPPORTED, f"unsupported: {outcome.detail:.80}"
    got = _got(attempt, outcome, took_s)
    if got:
        return Verdict.NOT_CONTAINED, got
    return Verdict.CONTAINED, f"{outcome.status} {outcome.error or outcome.detail:.80}".rstrip()


def _got(attempt: Attempt, outcome: Outcome, took_s: float) -> str:
    """What the attempt got; empty where it got nothing."""
    if outcome.status is Status.INFRA:
        return f"the sandbox itself failed: {outcome.detail}"
    if took_s > LIMITS.timeout_s + _SLACK_S:
        return f"held the host up for {took_s:.1f} s"
    match attempt.goal:
        case Goal.REACH:
            value = outcome.results[0] if outcome.results else None
            return str(value.value)[:200] if isinstance(value, Returned) and isinstance(value.value, str) else ""
        case Goal.END:
            return "" if outcome.status in attempt.statuses else f"ended with {outcome.status}"
        case Goal.TEXT:
            kept = outcome.stdout_tail + outcome.stderr_tail + outcome.detail + outcome.error
            return "" if all(c.isprintable() or c in "\n\t" for c in kept) else "characters that do not print are kept"
        case Goal.CLOCK:
            return "" if outcome.usage.wall_s >= 0.25 else f"{outcome.usage.wall_s:.3f} s were believed"
    raise AssertionError(attempt.goal)


def _judge_grade(runner: LayerRunner, code: str, bait: Bait) -> tuple[Verdict, str]:
    sandbox = Sandbox(ladder=[runner], limits=LIMITS)
    examination = prepare(SECRET_TEST, sandbox)
    outcome = sandbox.run(Program(code=code, entry=SECRET_TEST.entry, calls=examination.calls))
    left = bait.left_behind()
    if left:
        return Verdict.NOT_CONTAINED, f"left behind: {left}"
    if outcome.status is Status.UNSUPPORTED:
        return Verdict.UNSUPPORTED, f"unsupported: {outcome.detail:.80}"
    # Asked of all results, those of a program that did not end well included, which a grader would not even look at.
    verdicts = examination.verdicts(outcome.results, sandbox)
    if outcome.status is Status.INFRA or verdicts is None:
        return Verdict.NOT_CONTAINED, f"the sandbox itself failed: {outcome.detail}"
    if any(verdicts):
        return Verdict.NOT_CONTAINED, "found right"
    return Verdict.CONTAINED, f"{outcome.status} {outcome.error or outcome.detail:.80}".rstrip()
