"""Scripted workers for the fleet's contract suite: what an item does stands in its `format`, a job's in its hyperparameters.

    do:fail          a failed outcome, as a broken verifier gives
    do:raise         the worker itself breaks, every time
    do:die           the process kills itself, every time (fleets of processes only)
    do:hang          never ends
    do:once:die ...  any of these on the first attempt of the item, done afterwards
    do:hold          waits until a test calls `release` with its id, then done
    anything else    done, with one episode a sample

Doubles leave marks in `<run_dir>/marks/`: `began-<item>.<n>` holds the pid of each attempt, so a test sees what ran and can
kill it. They need no model, no tasks and no torch.
"""

import os
import shutil
import signal
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from coharness.config.schema import RunConfig
from coharness.loop.replay_store import ArrowReplayStore
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.errors import Boundary
from coharness.records.events import Resumed, Started
from coharness.records.ids import ItemId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Fleet, ReplayStore
from coharness.records.training import Job, JobResult, JobStatus, MergeJob, RepairJob, TrainJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, WorkBatch, WorkItem

if TYPE_CHECKING:
    from coharness.loop.engine import Engine

BASE = WeightsRef(uri="", digest="scripted", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
JOB_SCRIPTS = ("raise", "die", "hang", "fail", "hold")
"""Hyperparameters that script a job when they are above 0: on every attempt, or on the first alone where they are 0.5."""


def marks(run_dir: Path, name: str) -> list[Path]:
    """The marks of one thing, in the order they were left."""
    found = (run_dir / "marks").glob(f"{name}.*")
    return sorted(found, key=lambda path: int(path.suffix[1:]))


def release(run_dir: Path, ids: Iterable[int]) -> None:
    """Let these items or jobs go on that `hold`."""
    (run_dir / "marks").mkdir(exist_ok=True)
    for number in ids:
        (run_dir / "marks" / f"released-{number}").touch()


class ScriptedWorker:
    """A RolloutWorker that does what its items say."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._run_dir = run_dir
        self._name = name

    def run(self, batch: WorkBatch) -> tuple[BatchResult, pa.Table]:
        """Outcomes by the items' scripts, and the episodes of those that were done."""
        outcomes: list[Outcome] = []
        episodes: list[Episode] = []
        for item in batch.items:
            attempt = _mark(self._run_dir, f"began-{item.id}")
            script = _item_script(item, attempt)
            if script == "fail":
                outcomes.append(
                    Outcome(
                        item=item.id,
                        status=OutcomeStatus.FAILED,
                        boundary=Boundary.VERIFIER,
                        message="as the item says",
                    )
                )
                continue
            _act(script, self._run_dir, item.id)
            group = [_episode(item, sample) for sample in range(item.group_size)]
            episodes += group
            outcomes.append(
                Outcome(
                    item=item.id,
                    status=OutcomeStatus.DONE,
                    num_correct=item.group_size,
                    scores=tuple(1.0 for _ in group),
                    num_parsed=item.group_size,
                    num_prompt_tokens=2 * item.group_size,
                    num_output_tokens=2 * item.group_size,
                )
            )
        result = BatchResult(batch=batch.id, worker=self._name, outcomes=tuple(outcomes), wall_s=0.0, cpu_s=0.0)
        return result, episodes_to_table(episodes)


class ScriptedJobs:
    """A job runner that reads its episodes and publishes nothing; its process id comes back as `double/pid`."""

    def __init__(self, run_dir: Path, replay: ReplayStore) -> None:
        self._run_dir = run_dir
        self._replay = replay

    def run(self, job: Job) -> JobResult:
        """The end of a job by its script."""
        attempt = _mark(self._run_dir, f"job-{job.id}")
        script = _job_script(job, attempt)
        if script == "fail":
            return JobResult(job=job.id, status=JobStatus.FAILED, boundary=Boundary.TRAINING, message="as the job says")
        _act(script, self._run_dir, job.id)
        num_rows = 0
        parents: tuple[VersionRef, ...]
        if isinstance(job, TrainJob):
            num_rows = self._replay.fetch([*job.items, *job.borrowed]).num_rows
            child, parents = VersionRef(job.policy, job.step), (job.start.ref,)
        elif isinstance(job, RepairJob):
            num_rows = self._replay.fetch(job.items).num_rows
            return JobResult(job=job.id, status=JobStatus.DONE, num_rows=num_rows)
        else:
            child, parents = VersionRef(job.child, 0), tuple(parent.ref for parent in job.parents)
        weights = WeightsRef(
            uri=f"weights/{child.policy}/v{child.step}",
            digest="scripted",
            kind=WeightsKind.BASE,
            num_bytes=0,
            has_optimizer=False,
            canary=0.0,
        )
        version = PolicyVersion(ref=child, weights=weights, parents=parents, operator="scripted")
        return JobResult(
            job=job.id,
            status=JobStatus.DONE,
            version=version,
            metrics={"double/pid": float(os.getpid())},
            num_rows=num_rows,
        )


class ScriptedWeights:
    """A WeightStore that deletes folders."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def retire(self, uris: Sequence[str]) -> None:
        """Delete these folders; one that is gone already is no error."""
        for uri in uris:
            shutil.rmtree(self._run_dir / uri, ignore_errors=True)


def build_worker(config: RunConfig, run_dir: Path, worker_name: str) -> ScriptedWorker:
    """A factory for fleets."""
    return ScriptedWorker(run_dir, worker_name)


def build_broken_worker(config: RunConfig, run_dir: Path, worker_name: str) -> ScriptedWorker:
    """A factory that never succeeds."""
    raise ValueError("this worker cannot be built")


def build_jobs(config: RunConfig, run_dir: Path, replay: ReplayStore) -> ScriptedJobs:
    """A factory for fleets."""
    return ScriptedJobs(run_dir, replay)


def open_store(run_dir: Path, epoch: int) -> ArrowReplayStore:
    """A factory for fleets; notes the process that opened the store."""
    _mark(run_dir, "store")
    return ArrowReplayStore(run_dir / "replay", epoch)


def open_weights(run_dir: Path) -> ScriptedWeights:
    """A factory for fleets."""
    return ScriptedWeights(run_dir)


def build_engine(run_dir: Path, fleet: Fleet, epoch: int, resume: bool) -> "Engine":
    """A factory for coordinators: the real core and engine on a base that is never loaded."""
    # Imported here: the core takes seconds to load, and workers do without it.
    from coharness.loop.build import fold_run
    from coharness.loop.clock import SystemClock
    from coharness.loop.engine import Engine
    from coharness.loop.journal import JournalWriter
    from coharness.loop.run_dir import RunDir

    run = RunDir.open(run_dir)
    config = run.load_config()
    journal = JournalWriter(run.journal_dir, epoch)
    evolution = fold_run(run)
    first: Started | Resumed = Resumed(epoch=epoch)
    if not resume:
        first = Started(
            run_id=run.run_id, seed=config.seed, config=config.model_dump(mode="json"), base=BASE, code_digest="doubles"
        )
    return Engine(evolution, fleet, journal, run, SystemClock(), epoch, first)


def _act(script: str, run_dir: Path, number: int) -> None:
    match script:
        case "ok":
            return
        case "raise":
            raise RuntimeError("scripted to break")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            threading.Event().wait()
        case "hold":
            pause = threading.Event()
            while not (run_dir / "marks" / f"released-{number}").exists():
                pause.wait(0.01)
        case _:
            raise ValueError(f"unknown script {script!r}; see the module's docstring")


def _item_script(item: WorkItem, attempt: int) -> str:
    if not item.format.startswith("do:"):
        return "ok"
    script = item.format.removeprefix("do:")
    if script.startswith("once:"):
        return script.removeprefix("once:") if attempt == 0 else "ok"
    return script


def _job_script(job: Job, attempt: int) -> str:
    if isinstance(job, MergeJob):
        return job.rule if job.rule in JOB_SCRIPTS else "ok"
    if isinstance(job, RepairJob):
        return "ok"
    for name in JOB_SCRIPTS:
        strength = job.hyperparameters.get(name, 0.0)
        if strength >= 1.0 or (strength > 0 and attempt == 0):
            return name
    return "ok"


def _mark(run_dir: Path, name: str) -> int:
    """Leave a mark with this process's id; returns how many there were before."""
    folder = run_dir / "marks"
    folder.mkdir(exist_ok=True)
    count = 0
    while True:
        # Written aside and linked, so that whoever sees the mark can read the id in it.
        temporary = folder / f"tmp-{os.getpid()}"
        temporary.write_text(str(os.getpid()))
        try:
            os.link(temporary, folder / f"{name}.{count}")
        except FileExistsError:
            count += 1
            continue
        finally:
            temporary.unlink()
        return count


def _episode(item: WorkItem, sample: int) -> Episode:
    return Episode(
        item=ItemId(item.id),
        sample=sample,
        policy=item.version.policy,
        step=item.version.step,
        harness=item.harness,
        task=item.task.id,
        family=item.task.family,
        level=item.task.level,
        task_seed=item.task.seed,
        format=item.format,
        purpose=item.purpose.value,
        temperature=item.temperature,
        token_ids=[1, 2, 3, 4],
        loss_mask=[False, False, True, True],
        logprobs=[0.0, 0.0, -0.5, -0.5],
        prompt_length=2,
        reference_ids=[3, 4],
        answer="x",
        stop_reason=StopReason.EOS,
        score=Score(value=1.0, exact=1.0, partial=0.0, format=1.0, length=0.0),
    )
