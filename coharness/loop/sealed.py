"""The sealed report: the one reading of SEALED tasks, after the run, by a list of servings that is fixed before it.

Arms: the four cells of base and champion weights in the initial and the champion's harness (what swapping does *at
inference*), the champion at each milestone, and the majority vote of k samples of the base, at equal rollouts and at the
champion's tokens a task. All arms answer the same tasks in the same order, greedy but for the vote, so they pair.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.harness.compile import serving_format
from coharness.loop.build import build_rollout_worker, fold_run
from coharness.loop.context import Context
from coharness.loop.items import ItemMaker
from coharness.loop.run_dir import RunDir
from coharness.loop.state import State
from coharness.loop.worker import EpisodeWorker
from coharness.records.errors import PreflightError
from coharness.records.harness import Harness
from coharness.records.ids import derive_seed
from coharness.records.policy import VersionRef
from coharness.records.task import Pool, Task
from coharness.records.work import OutcomeStatus, Purpose, Serving, WorkBatch, WorkItem
from coharness.tasks.draw import draw_task

SEALED_SCHEMA = 1
TWINS = 64
"""Tasks that the champion answers a second time in another batch; a single difference is a bug of ours."""
BATCH = 64

Progress = Callable[[str, int, int], None]
"""(what, done, of how many)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    correct: int
    tokens: int
    answers: tuple[str | None, ...]
    exact: tuple[int, ...]


def measure_sealed(run_dir: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Read the SEALED tasks and write sealed.json; a run that has been read gives what was read.

    Raises:
        PreflightError: the run has no champion yet.
    """
    run = RunDir.open(run_dir)
    if run.sealed_path.is_file():
        data: dict[str, Any] = json.loads(run.sealed_path.read_text(encoding="utf-8"))
        return data
    evolution = fold_run(run)
    state, ctx = evolution.state, evolution.context
    if state.champion is None:
        raise PreflightError(f"run {run.path} has not begun; there is nothing to measure")
    reader = _Reader(state, ctx, build_rollout_worker(ctx.config, run.path, "sealed"), progress or (lambda *_: None))
    try:
        report = _measure(reader, state, ctx)
    finally:
        reader.close()
    temp = run.sealed_path.with_suffix(".tmp")
    temp.write_text(json.dumps(report), encoding="utf-8")
    temp.replace(run.sealed_path)
    return report


def sealed_tasks(ctx: Context) -> list[Task]:
    """The sealed tasks of a run: the same for every schedule and seed of a config's task section."""
    tasks: list[Task] = []
    seen: set[str] = set()
    for family, level in ctx.space.mix:
        for index in range(ctx.config.evaluation.sealed_per_cell):
            task = draw_task(ctx.sources, family, level, Pool.SEALED, derive_seed("sealed", family, level, index))
            if task.id not in seen:
                seen.add(task.id)
                tasks.append(task)
    return tasks


def _measure(reader: "_Reader", state: State, ctx: Context) -> dict[str, Any]:
    champion = state.champion
    assert champion is not None
    base, h0 = VersionRef(state.members[0].policy, 0), ctx.h0
    base = next((ref for ref, v in sorted(state.versions.items()) if not v.weights.uri), base)
    tasks = sealed_tasks(ctx)
    h = state.harnesses[champion.harness]
    arms: dict[str, Any] = {}
    for name, version, harness in (
        ("theta0_h0", base, h0),
        ("theta_h0", champion.version, h0),
        ("theta0_h", base, h),
        ("theta_h", champion.version, h),
    ):
        arms[name] = _arm(reader.greedy(name, version, harness, tasks), tasks, Serving(version, harness.id))
    milestones = []
    for milestone in state.milestones:
        serving = milestone.serving
        answers = reader.greedy("milestones", serving.version, state.harnesses[serving.harness], tasks)
        milestones.append(
            {
                "rollouts": milestone.rollouts,
                "tokens": milestone.tokens,
                "cpu_s": milestone.cpu_s,
                "serving": str(serving),
                "arm": _arm(answers, tasks, serving),
            }
        )
    cap = ctx.config.evaluation.best_of_k
    if cap:
        spent = max(state.charged, 1)
        mean_tokens = {name: sum(r[4] for r in arm["rows"]) / len(tasks) for name, arm in arms.items()}
        ks = {
            "vote_equal_rollouts": min(cap, math.ceil(spent / len(tasks))),
            "vote_equal_tokens": min(cap, max(1, round(mean_tokens["theta_h"] / max(mean_tokens["theta0_h0"], 1)))),
        }
        samples = reader.samples("vote", base, h0, tasks, max(ks.values()))
        for name, k in ks.items():
            arms[name] = _vote(samples, tasks, Serving(base, h0.id), k)
    return {
        "schema": SEALED_SCHEMA,
        "run": state.run_id,
        "seed": ctx.config.seed,
        "schedule": ctx.config.schedule.value,
        "rollouts": state.charged,
        "tokens": state.tokens,
        "cpu_s": state.cpu_s,
        "elapsed_s": state.elapsed_s,
        "num_tasks": len(tasks),
        "arms": arms,
        "milestones": milestones,
        "twin": reader.twins(champion, h, tasks),
    }


def _arm(answers: Sequence[_Answer], tasks: Sequence[Task], serving: Serving) -> dict[str, Any]:
    rows = [[t.family, t.level, t.id, a.correct, a.tokens] for t, a in zip(tasks, answers, strict=True)]
    return {"serving": str(serving), "k": 1, "rows": rows}


def _vote(samples: Sequence[_Answer], tasks: Sequence[Task], serving: Serving, k: int) -> dict[str, Any]:
    """Majority of the first k answers; of equal ones the answer that came first. No verifier has a say."""
    rows, oracle = [], []
    for task, sample in zip(tasks, samples, strict=True):
        answers, exact = sample.answers[:k], sample.exact[:k]
        counts = Counter(a for a in answers if a is not None)
        correct = 0
        if counts:
            best = max(counts, key=lambda a: (counts[a], -answers.index(a)))
            correct = exact[answers.index(best)]
        rows.append([task.family, task.level, task.id, correct, round(sample.tokens * k / len(sample.answers))])
        oracle.append(int(any(exact)))
    return {"serving": str(serving), "k": k, "rows": rows, "oracle_correct": oracle}


class _Reader:
    """Answers tasks with pinned servings; what two arms share is computed once."""

    def __init__(self, state: State, ctx: Context, worker: EpisodeWorker, progress: Progress) -> None:
        self._state = state
        self._ctx = ctx
        self._worker = worker
        self._progress = progress
        self._make = ItemMaker(ctx.config, 0)
        self._known: dict[tuple[str, str, str], _Answer] = {}

    def close(self) -> None:
        self._worker.close()

    def greedy(self, what: str, version: VersionRef, harness: Harness, tasks: Sequence[Task]) -> list[_Answer]:
        """One greedy answer a task."""
        digest = self._state.versions[version].weights.digest
        keys = [(digest, self._ctx.signature(harness, t.family), t.id) for t in tasks]
        missing = [t for t, key in zip(tasks, keys, strict=True) if key not in self._known]
        answers = self._run(what, version, harness, missing, samples=1, temperature=0.0)
        for task, answer in zip(missing, answers, strict=True):
            self._known[digest, self._ctx.signature(harness, task.family), task.id] = answer
        return [self._known[key] for key in keys]

    def samples(
        self, what: str, version: VersionRef, harness: Harness, tasks: Sequence[Task], count: int
    ) -> list[_Answer]:
        """`count` answers a task at temperature 1."""
        return self._run(what, version, harness, tasks, samples=count, temperature=1.0)

    def twins(self, champion: Serving, harness: Harness, tasks: Sequence[Task]) -> dict[str, int]:
        """Answer some tasks again in other batches and count the differences."""
        step = max(len(tasks) // TWINS, 1)
        some = list(tasks[::step])[:TWINS]
        first = self.greedy("twins", champion.version, harness, some)
        again = self._run("twins", champion.version, harness, some[::-1], samples=1, temperature=0.0)[::-1]
        return {
            "pairs": len(some),
            "discordant": sum(a.answers != b.answers for a, b in zip(first, again, strict=True)),
        }

    def _run(
        self,
        what: str,
        version: VersionRef,
        harness: Harness,
        tasks: Sequence[Task],
        *,
        samples: int,
        temperature: float,
    ) -> list[_Answer]:
        weights = {version: self._state.versions[version].weights}
        per_batch = max(BATCH * 4 // samples, 1)
        answers: list[_Answer] = []
        for start in range(0, len(tasks), per_batch):
            part = tasks[start : start + per_batch]
            items = tuple(self._item(version, harness, task, samples, temperature) for task in part)
            batch = WorkBatch(id=start, items=items, harnesses={harness.id: harness}, weights=weights, lease_s=math.inf)
            result, table = self._worker.run(batch)
            failed = [o for o in result.outcomes if o.status is not OutcomeStatus.DONE]
            if failed:
                raise PreflightError(f"a sealed task could not be measured ({failed[0].boundary}): {failed[0].message}")
            rows: dict[int, list[dict[str, Any]]] = {}
            columns = table.select(["item", "sample", "answer", "exact", "token_ids"]).to_pylist()
            for row in columns:
                rows.setdefault(row["item"], []).append(row)
            for item in items:
                mine = sorted(rows[item.id], key=lambda r: r["sample"])
                answers.append(
                    _Answer(
                        correct=int(mine[0]["exact"]),
                        tokens=sum(len(r["token_ids"]) for r in mine),
                        answers=tuple(r["answer"] for r in mine),
                        exact=tuple(int(r["exact"]) for r in mine),
                    )
                )
            self._progress(what, len(answers), len(tasks))
        return answers

    def _item(self, version: VersionRef, harness: Harness, task: Task, samples: int, temperature: float) -> WorkItem:
        return self._make.make(
            version=version,
            harness=harness,
            harness_id=harness.id,
            task=task,
            answer_format=serving_format(harness, self._ctx.sources, task.family),
            purpose=Purpose.SEALED,
            # A task's examples and distractors are the same in every arm.
            seed=derive_seed("sealed-item", task.id),
            group_size=samples,
            temperature=temperature,
        )
