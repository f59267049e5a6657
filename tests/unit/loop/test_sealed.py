"""The sealed report: one reading after the run, the same tasks in the same order for every arm, votes without a verifier."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coharness.loop import sealed
from coharness.loop.build import fold_run
from coharness.loop.run_dir import RunDir
from coharness.loop.sealed import measure_sealed, sealed_tasks
from coharness.loop.worker import EpisodeWorker
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.errors import PreflightError
from coharness.records.task import Pool, Task
from coharness.reward.verify import VerifierRouter
from coharness.testing.runs import simulated_config, simulated_run

SECTIONS: dict[str, Any] = {
    "tasks": [{"type": "builtin", "families": ["count", "sort"], "max_level": 2}],
    "budget": {"rollouts": 800},
    "gate": {"max_pairs": 64},
    "evaluation": {"sealed_per_cell": 3, "best_of_k": 5},
}
Script = Callable[[str, int], str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return simulated_run(tmp_path_factory.mktemp("runs") / "run", **SECTIONS)[0]


class Answers:
    """A script that knows the sealed tasks of a run, and counts what it is asked."""

    def __init__(self, run: RunDir, wrong: Callable[[Task, int], bool] = lambda task, seed: False) -> None:
        context = fold_run(run).context
        self.tasks = sealed_tasks(context)
        self._by_question = {task.question: task for task in self.tasks}
        self._wrong = wrong
        self.asked: Counter[tuple[str, bool]] = Counter()

    def __call__(self, prompt: str, seed: int) -> str:
        task = self._by_question[prompt[:-1]]
        self.asked[task.id, seed == 0] += 1
        fmt = {"=": "plain", ">": "trace", "<": "backward", "~": "echo", "_": "filler", "^": "mirror", "!": "doubled"}
        reference = task.references[fmt[prompt[-1]]]
        # What breaks each format's reading, or reads as another answer.
        return "x" if self._wrong(task, seed) else reference


@pytest.fixture
def measured(finished: RunDir, monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], dict[str, Any]]:
    """Measure the run with a scripted engine in place of a model; everything else is what a run uses."""

    def measure(script: Script, **options: Any) -> dict[str, Any]:
        finished.sealed_path.unlink(missing_ok=True)
        sources = fold_run(finished).context.sources
        monkeypatch.setattr(
            sealed,
            "build_rollout_worker",
            lambda config, run_dir, name: EpisodeWorker(
                name, sources, ScriptedGenerator(script), VerifierRouter(), 256
            ),
        )
        return measure_sealed(finished.path, **options)

    return measure


def test_all_arms_answer_the_same_sealed_tasks_in_the_same_order(
    finished: RunDir, measured: Callable[[Script], dict[str, Any]]
) -> None:
    answers = Answers(finished)
    report = measured(answers)
    assert {task.pool for task in answers.tasks} == {Pool.SEALED}
    expected = [[task.family, task.level, task.id] for task in answers.tasks]
    assert len({task.id for task in answers.tasks}) == len(expected) == report["num_tasks"]
    assert Counter((family, level) for family, level, _ in expected) == dict.fromkeys(
        fold_run(finished).context.space.mix, 3
    )
    assert set(report["arms"]) == {
        "theta0_h0", "theta_h0", "theta0_h", "theta_h", "vote_equal_rollouts", "vote_equal_tokens",
    }  # fmt: skip
    for arm in [*report["arms"].values(), *(m["arm"] for m in report["milestones"])]:
        assert [row[:3] for row in arm["rows"]] == expected
        assert all(row[3] in (0, 1) and row[4] > 0 for row in arm["rows"])
    assert report["twin"] == {"pairs": len(expected), "discordant": 0}
    assert all(row[3] == 1 for row in report["arms"]["theta_h"]["rows"])


def test_arms_and_milestones_are_those_of_the_run(
    finished: RunDir, measured: Callable[[Script], dict[str, Any]]
) -> None:
    report = measured(Answers(finished))
    state = fold_run(finished).state
    champion, h0 = state.champion, fold_run(finished).context.h0.id
    assert champion is not None
    assert report["arms"]["theta_h"]["serving"] == str(champion)
    assert report["arms"]["theta0_h"]["serving"].endswith(f"@0×{champion.harness}")
    assert report["arms"]["theta_h0"]["serving"] == f"{champion.version}×{h0}"
    assert [m["serving"] for m in report["milestones"]] == [str(m.serving) for m in state.milestones]
    assert [m["rollouts"] for m in report["milestones"]] == sorted(m.rollouts for m in state.milestones)
    assert report["rollouts"] == state.charged


def test_sealed_is_read_once_and_what_was_read_stays(
    finished: RunDir, measured: Callable[[Script], dict[str, Any]]
) -> None:
    answers = Answers(finished)
    report = measured(answers)
    asked = answers.asked.total()
    again = measure_sealed(finished.path)
    assert answers.asked.total() == asked
    assert again == json.loads(json.dumps(report)) == json.loads(finished.sealed_path.read_text())


def test_what_two_arms_share_is_computed_once(finished: RunDir, measured: Callable[[Script], dict[str, Any]]) -> None:
    answers = Answers(finished)
    report = measured(answers)
    state = fold_run(finished).state
    h0 = fold_run(finished).context.h0.id
    assert state.champion is not None
    servings = {(state.champion.version, state.champion.harness), (state.champion.version, h0)}
    servings |= {(m.serving.version, m.serving.harness) for m in state.milestones}
    # At most each distinct serving, the base in two harnesses, and the twin; never an arm or milestone twice.
    assert max(n for (_, greedy), n in answers.asked.items() if greedy) <= len(servings) + 2 + 1
    k = max(report["arms"][name]["k"] for name in ("vote_equal_rollouts", "vote_equal_tokens"))
    assert {n for (_, greedy), n in answers.asked.items() if not greedy} == {k}


def test_a_vote_is_the_majority_and_the_oracle_is_only_a_bound(
    finished: RunDir, measured: Callable[[Script], dict[str, Any]]
) -> None:
    # Greedy is always wrong; of the samples, two in three are right for count, one in three for sort.
    def wrong(task: Task, seed: int) -> bool:
        return seed == 0 or (seed % 3 == 0) == (task.family == "count")

    vote = measured(Answers(finished, wrong))["arms"]["vote_equal_rollouts"]
    assert vote["k"] == 5
    by_family: dict[str, list[int]] = {"count": [], "sort": []}
    for row, oracle in zip(vote["rows"], vote["oracle_correct"], strict=True):
        assert row[3] <= oracle
        by_family[row[0]].append(row[3])
    assert sum(by_family["count"]) > sum(by_family["sort"])
    assert sum(vote["oracle_correct"]) > sum(row[3] for row in vote["rows"])


def sample(*answers: str | None, right: str = "r") -> sealed._Answer:
    exact = tuple(int(a == right) for a in answers)
    return sealed._Answer(correct=exact[0], tokens=10 * len(answers), answers=answers, exact=exact)


@pytest.mark.parametrize(
    ("answers", "k", "correct", "oracle"),
    [
        (("r", "w", "w"), 3, 0, 1),
        (("w", "r", "r"), 3, 1, 1),
        # Of equal ones the answer that came first.
        (("r", "w"), 2, 1, 1),
        (("w", "r"), 2, 0, 1),
        # What could not be read has no vote.
        ((None, None, "r"), 3, 1, 1),
        ((None, None), 2, 0, 0),
        # Only the first k count.
        (("w", "r", "r"), 1, 0, 0),
    ],
)
def test_votes_by_hand(finished: RunDir, answers: tuple[str | None, ...], k: int, correct: int, oracle: int) -> None:
    evolution = fold_run(finished)
    task = sealed_tasks(evolution.context)[0]
    assert evolution.state.champion is not None
    arm = sealed._vote([sample(*answers)], [task], evolution.state.champion, k)
    assert arm["rows"] == [[task.family, task.level, task.id, correct, 10 * k]]
    assert (arm["oracle_correct"], arm["k"]) == ([oracle], k)


def test_sealed_tasks_are_the_same_for_every_schedule_and_seed(finished: RunDir, tmp_path: Path) -> None:
    mine = [task.id for task in sealed_tasks(fold_run(finished).context)]
    other = RunDir.create(simulated_config(tmp_path / "run", **{**SECTIONS, "schedule": "weights_only", "seed": 9}))
    assert [task.id for task in sealed_tasks(fold_run(other).context)] == mine


def test_a_task_that_cannot_be_measured_stops_the_report(
    finished: RunDir, measured: Callable[[Script], dict[str, Any]]
) -> None:
    def broken(prompt: str, seed: int) -> str:
        raise RuntimeError("broke")

    with pytest.raises(PreflightError, match=r"could not be measured \(generation\): RuntimeError: broke"):
        measured(broken)
    # A report of half of the tasks would be no report.
    assert not finished.sealed_path.exists()


def test_a_run_that_has_not_begun_has_nothing_to_measure(tmp_path: Path) -> None:
    run = RunDir.create(simulated_config(tmp_path / "run", **SECTIONS))
    with pytest.raises(PreflightError, match="has not begun"):
        measure_sealed(run.path)
