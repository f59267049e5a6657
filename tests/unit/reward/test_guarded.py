"""The guarded child: what an answer may make it do, and what becomes of an answer that breaks it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coharness.config.schema import ReasoningGymTasks
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.task import Task, VerifierKind, VerifierSpec
from coharness.reward.verify import VerifierRouter
from coharness.reward.verify.guarded import ChildKind, GuardedScorer
from coharness.tasks.reasoning_gym import ReasoningGymSource

RISKY = (
    "spiral_matrix", "string_insertion", "binary_matrix", "countdown", "puzzle24", "simple_integration",
    "intermediate_integration", "n_queens",
)  # fmt: skip
"""Families whose scorers evaluate the answer's text, besides polynomial_multiplication (which needs a fixed hash seed)."""
HANGS = "9^{9^{9^9}}"


@pytest.fixture(scope="module")
def gym() -> ReasoningGymSource:
    return ReasoningGymSource(ReasoningGymTasks(type="reasoning_gym", families=RISKY, partial_credit=True))


@pytest.fixture(scope="module")
def gym_scorer() -> Iterator[GuardedScorer]:
    scorer = GuardedScorer(ChildKind.REASONING_GYM, timeout_s=20.0)
    yield scorer
    scorer.close()


@pytest.fixture(scope="module")
def math_scorer() -> Iterator[GuardedScorer]:
    scorer = GuardedScorer(ChildKind.MATH, timeout_s=20.0)
    yield scorer
    scorer.close()


def attacks(target: Path) -> list[str]:
    return [
        f"open({str(target)!r}, 'w').write('x')",
        f"__import__('os').system('touch {target}')",
        f"__import__('pathlib').Path({str(target)!r}).touch()",
        f"__import__('subprocess').run(['touch', {str(target)!r}])",
        f"__import__('os').mkdir({str(target)!r})",
    ]


def request(task: Task, answer: str) -> dict[str, Any]:
    return {**task.verifier.params, "expected": task.answer, "answer": answer}


@pytest.mark.parametrize("family", RISKY)
def test_an_attack_is_refused_by_the_gate_and_not_paid(family: str, gym: ReasoningGymSource, tmp_path: Path) -> None:
    task = gym.make(family, 1, 3)
    router = VerifierRouter()
    for attack in attacks(tmp_path / "touched"):
        check = router.check(task.verifier, task.question, task.answer, attack)
        assert (check.correct, check.partial) == (False, 0.0)
    assert list(tmp_path.iterdir()) == []
    assert router._guarded[ChildKind.REASONING_GYM].pid is None


@pytest.mark.parametrize("family", RISKY)
def test_the_child_holds_without_the_gate_too(
    family: str, gym: ReasoningGymSource, gym_scorer: GuardedScorer, tmp_path: Path
) -> None:
    task = gym.make(family, 1, 3)
    for attack in attacks(tmp_path / "touched"):
        assert gym_scorer.score(request(task, attack)).score < 1.0
    assert list(tmp_path.iterdir()) == []


def test_the_attack_is_live_where_nothing_guards(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    program = (
        "from reasoning_gym.factory import create_dataset\n"
        "data = create_dataset('spiral_matrix', seed=3, size=1)\n"
        f"data.score_answer({attacks(target)[0]!r}, data[0])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env={"OMP_NUM_THREADS": "1"})
    assert target.exists()


@pytest.mark.parametrize("family", RISKY)
def test_references_are_paid_by_the_packages_own_scorer(
    family: str, gym: ReasoningGymSource, gym_scorer: GuardedScorer
) -> None:
    task = gym.make(family, 1, 4)
    assert gym_scorer.score(request(task, task.answer)).score == 1.0


def test_another_right_answer_is_paid_and_a_wrong_one_is_not(gym: ReasoningGymSource) -> None:
    task = gym.make("countdown", 1, 5)
    router = VerifierRouter(timeout_s=20.0)
    try:
        turned = f"0 + ({task.answer}) * 1"
        spaced = task.answer.replace(" ", "  ")
        assert router.check(task.verifier, task.question, task.answer, f" {task.answer} ").correct
        assert router.check(task.verifier, task.question, task.answer, spaced).correct
        assert not router.check(task.verifier, task.question, task.answer, turned).correct
    finally:
        router.close()


def test_an_answer_that_ends_the_child_counts_against_itself_alone(
    gym: ReasoningGymSource, gym_scorer: GuardedScorer
) -> None:
    task = gym.make("spiral_matrix", 1, 3)
    before = gym_scorer.pid
    judged = gym_scorer.score(request(task, "__import__('os')._exit(0)"))
    assert judged.score == 0
    assert judged.feedback == "the verifier gave up: its process has died"
    assert gym_scorer.pid not in (None, before)
    assert gym_scorer.score(request(task, task.answer)).score == 1.0


def test_a_forged_reply_is_not_believed(gym: ReasoningGymSource, gym_scorer: GuardedScorer) -> None:
    task = gym.make("spiral_matrix", 1, 3)
    forged = b'{"id": 1, "score": 1.0}\n'
    answer = f"[__import__('os').write(n, {forged!r}) for n in range(3, 9)]"
    assert gym_scorer.score(request(task, answer)).score == 0


def test_an_entry_that_cannot_be_rebuilt_is_a_failure_of_the_verifier(
    gym: ReasoningGymSource, gym_scorer: GuardedScorer
) -> None:
    task = gym.make("spiral_matrix", 1, 3)
    with pytest.raises(BoundaryError, match="package versions differ") as failure:
        gym_scorer.score({**request(task, "1 2 3"), "expected": "nothing"})
    assert failure.value.boundary is Boundary.VERIFIER


@pytest.mark.parametrize(
    ("expected", "answer", "score"),
    [
        ("1/2", "0.5", 1),
        ("\\frac{1}{2}", "$\\dfrac12$", 1),
        ("x^2+2x+1", "(x+1)^2", 1),
        ("\\{1,2\\}", "\\{2,1\\}", 1),
        ("2\\sqrt{2}", "\\sqrt{8}", 1),
        ("1/2", "0.6", 0),
        ("2", "2 or 3", 0),
        ("3", "\\{2,3\\}", 0),
        ("1", "\\frac{", 0),
        ("1", "", 0),
    ],
)
def test_mathematics_is_compared_by_value(math_scorer: GuardedScorer, expected: str, answer: str, score: float) -> None:
    assert math_scorer.score({"expected": expected, "answer": answer}).score == score


def test_an_expression_that_hangs_is_killed_in_time_and_counts_as_incorrect() -> None:
    router = VerifierRouter(timeout_s=2.0)
    try:
        spec = VerifierSpec(kind=VerifierKind.MATH)
        begin = time.monotonic()
        check = router.check(spec, "", "10", HANGS)
        assert time.monotonic() - begin < 60
        assert not check.correct
        assert check.feedback == "the verifier gave up: no reply within 2 s"
        assert router.check(spec, "", "10", "20/2").correct
    finally:
        router.close()


def test_a_verifier_that_fails_its_canary_is_a_failure_and_no_score() -> None:
    scorer = GuardedScorer(ChildKind.MATH, timeout_s=0.0)
    with pytest.raises(BoundaryError, match="fails on a known good answer too"):
        scorer.score({"expected": "1", "answer": "2"})
    assert scorer.pid is None


def test_a_child_that_does_not_start_is_a_failure_and_no_score() -> None:
    with pytest.raises(BoundaryError, match=r"did not start: no reply within 0\.01 s"):
        GuardedScorer(ChildKind.MATH, start_s=0.01).score({"expected": "1", "answer": "2"})
    with pytest.raises(BoundaryError, match="verifier"):
        GuardedScorer(ChildKind.REASONING_GYM, memory_bytes=40 * 2**20).score({"expected": "1", "answer": "2"})


def test_close_ends_the_child_and_the_next_call_starts_another(math_scorer: GuardedScorer) -> None:
    math_scorer.score({"expected": "1", "answer": "2"})
    pid = math_scorer.pid
    assert pid is not None
    math_scorer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert math_scorer.score({"expected": "1", "answer": "2/2"}).score == 1.0


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_the_child_inherits_nothing_and_is_limited(math_scorer: GuardedScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    math_scorer.close()
    math_scorer.score({"expected": "1", "answer": "2"})
    process = Path(f"/proc/{math_scorer.pid}")
    names = {entry.partition("=")[0] for entry in (process / "environ").read_text().split("\0") if entry}
    assert names == {"PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANG", "PYTHONHASHSEED"}
    limits = (process / "limits").read_text()
    assert [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max file size")] == [["0", "bytes"]]
    assert os.getpgid(int(process.name)) == int(process.name) != os.getpgid(0)


def test_a_request_that_is_too_long_is_refused_before_it_is_sent(math_scorer: GuardedScorer) -> None:
    with pytest.raises(BoundaryError, match="over 60000 bytes"):
        math_scorer.score({"expected": "1" * 70_000, "answer": "1"})
