"""Code tasks through the running software: router, worker, preflight and doctor."""

import json
from pathlib import Path
from typing import Any

import pytest

from coharness.cli.doctor import SandboxFinding, doctor
from coharness.cli.exit_codes import ExitCode
from coharness.config.sandbox import SandboxSection
from coharness.config.schema import RunConfig
from coharness.loop import preflight as module
from coharness.loop.preflight import Level
from coharness.loop.worker import EpisodeWorker
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.episode import episodes_from_table
from coharness.records.errors import Boundary, BoundaryError, PreflightError
from coharness.records.harness import Harness
from coharness.records.ids import ItemId, PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.task import Task
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.sandbox import Layer, Sandbox
from coharness.reward.verify import VerifierRouter
from coharness.tasks.sources import TaskSources, build_sources
from coharness.testing.runs import simulated_config

ROW = {
    "prompt": 'def double(x: int) -> int:\n    """Two times x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n    assert candidate(-1) == -2\n",
}


@pytest.fixture
def sources(tmp_path: Path, sandbox: Sandbox) -> TaskSources:
    """Needs a sandbox that works."""
    return build_sources(config(tmp_path).tasks, tmp_path)


def config(folder: Path, **sandbox: Any) -> RunConfig:
    (folder / "rows.jsonl").write_text(json.dumps(ROW), encoding="utf-8")
    tasks = [{"type": "code", "path": str(folder / "rows.jsonl"), "family": "own"}]
    return simulated_config(folder / "new" / "run", tasks=tasks, reward={"sandbox": sandbox})


def task(sources: TaskSources) -> Task:
    return sources.make("own", 1, 0)


def test_the_router_runs_code_and_passes_on_what_was_measured(sources: TaskSources) -> None:
    router, asked = VerifierRouter(sandbox=SandboxSection(timeout_s=30.0)), task(sources)
    right = router.check(asked.verifier, asked.question, asked.answer, "def double(x):\n    return x + x")
    wrong = router.check(asked.verifier, asked.question, asked.answer, "def double(x):\n    return x + 3")
    router.close()
    assert (right.correct, right.partial, right.feedback) == (True, 1.0, "")
    assert (wrong.correct, wrong.partial, wrong.feedback) == (False, 0.5, "some tests fail")
    assert set(right.parts) == {"code/loads", "code/runs", "code/allowed", "code/time", "code/memory"}
    assert all(0.0 <= value <= 1.0 for value in right.parts.values())


def test_a_wrong_reference_is_a_failure_of_the_task_and_no_score(sources: TaskSources) -> None:
    router, asked = VerifierRouter(), task(sources)
    with pytest.raises(BoundaryError, match="fails its own test") as raised:
        router.check(asked.verifier, asked.question, "def double(x):\n    return 7", asked.answer)
    router.close()
    assert raised.value.boundary is Boundary.VERIFIER


def test_a_machine_without_a_layer_fails_the_episode_and_scores_nothing(
    sources: TaskSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Sandbox) -> None:
        raise PreflightError("no sandbox layer works here")

    monkeypatch.setattr(Sandbox, "_climb", refuse)
    asked = task(sources)
    with pytest.raises(BoundaryError, match="no sandbox layer works here"):
        VerifierRouter().check(asked.verifier, asked.question, asked.answer, asked.answer)


def test_a_worker_scores_what_the_policy_wrote(sources: TaskSources) -> None:
    asked, harness, version = task(sources), Harness(tasks=()), VersionRef(PolicyId("p0"), 1)
    answers = iter(["<answer>def double(x):\n    return x << 1</answer>", "<answer>import os\nos._exit(0)</answer>"])
    worker = EpisodeWorker("w", sources, ScriptedGenerator(lambda prompt, seed: next(answers)), VerifierRouter(), 4_096)
    item = WorkItem(
        id=ItemId(1), version=version, harness=harness.id, task=asked.ref, format="tagged", purpose=Purpose.TRAIN, seed=1,
        group_size=2, temperature=1.0, max_tokens=200,
    )  # fmt: skip
    weights = WeightsRef(uri="", digest="b", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
    batch = WorkBatch(id=1, items=(item,), harnesses={harness.id: harness}, weights={version: weights}, lease_s=60.0)
    result, table = worker.run(batch)
    worker.close()
    (outcome,) = result.outcomes
    assert (outcome.status, outcome.num_correct, outcome.num_parsed) == (OutcomeStatus.DONE, 1, 2)
    assert [episode.score.feedback for episode in episodes_from_table(table)] == [
        "",
        "the code's process ended by itself",
    ]


def sandbox_finding(run_config: RunConfig) -> tuple[Level, str]:
    ((level, message),) = [
        (f.level, f.message) for f in module._sandbox_findings(run_config) if f.what == "reward.sandbox"
    ]
    return level, message


def test_preflight_says_where_code_will_run(tmp_path: Path, sandbox: Sandbox) -> None:
    level, message = sandbox_finding(config(tmp_path))
    assert level in (Level.INFO, Level.WARNING)
    assert message.startswith(f"code runs in {', '.join(sandbox.layers)}")
    assert module._sandbox_findings(simulated_config(tmp_path / "other")) == []


def test_a_run_below_its_declared_minimum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coharness.reward.sandbox.ladder.why_unusable", lambda runner: "refused here")
    level, message = sandbox_finding(config(tmp_path, minimum="bubblewrap"))
    assert level is Level.ERROR
    assert message == (
        "no sandbox layer at or above reward.sandbox.minimum=bubblewrap works here "
        "(monty: refused here; bubblewrap: refused here)"
    )


def test_the_unsafe_layer_is_said_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usable = lambda runner: None if runner.layer is Layer.UNSAFE else "refused here"  # noqa: E731
    monkeypatch.setattr("coharness.reward.sandbox.ladder.why_unusable", usable)
    assert sandbox_finding(config(tmp_path))[0] is Level.ERROR
    level, message = sandbox_finding(config(tmp_path, unsafe=True))
    assert level is Level.WARNING
    assert "UNSAFE" in message


def test_the_unsafe_layer_is_no_minimum(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="minimum"):
        config(tmp_path, minimum="unsafe")


def test_the_doctor_fails_where_a_layer_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coharness.cli.compose.machine_findings", lambda with_ray: [])
    found = SandboxFinding(level="error", what="sandbox landlock", message="attempt 9: not contained")
    monkeypatch.setattr("coharness.cli.doctor.sandbox_findings", lambda: [found])
    assert doctor(with_ray=False, with_sandbox=True, as_json=True) is ExitCode.CHECK_FAILED
    assert json.loads(capsys.readouterr().out)[0]["what"] == "sandbox landlock"
    assert doctor(with_ray=False, with_sandbox=False, as_json=True) is ExitCode.DONE
