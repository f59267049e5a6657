"""A fleet without models: outcomes are drawn from a latent skill that grows with training. For tests of the loop at speed.

The very core that a real run uses is driven, through the very port. Skill of a version is practised rows by (family, format);
the chance of success falls with the level, more steeply in a plain format than in a trace, so that there is something for a
harness to find. Everything is a pure function of the seed and the commands.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coharness.records import events as ev
from coharness.records.errors import Boundary
from coharness.records.ids import JudgeId, content_hash, derive_seed
from coharness.records.judging import MendedJudge
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.training import Job, JobResult, JobStatus, MergeJob, RepairJob, TrainJob
from coharness.records.work import Audit, BatchResult, Outcome, OutcomeStatus, WorkBatch, WorkItem
from coharness.reward.monitors.shortcut import FEATURES

Skill = Mapping[tuple[str, str], float]

SIMULATED_BASE = WeightsRef(
    uri="", digest="simulated-base", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0
)
HELPFUL = frozenset({"trace", "backward"})
USELESS = frozenset({"echo", "filler", "doubled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJudge:
    """How the judge of a simulated run errs: from some item on it rates many wrong attempts high, until it is mended."""

    hacked_from: int = 10**9
    "First item id that is hacked."
    healthy_rate: float = 0.02
    "Chance that a wrong attempt is rated high in health, and by a mended judge."
    hacked_rate: float = 0.5
    repairs_work: bool = True
    "Whether a candidate has fewer conflicts than the judge it is to replace."

    def audits(self, item: WorkItem, correct: Sequence[bool]) -> tuple[Audit, ...]:
        """Judge and verifier side by side, where the item asks for it."""
        if item.judging is None or not item.judging.audited:
            return ()
        mended = item.judging.judge.startswith(MENDED) and self.repairs_work
        rate = self.hacked_rate if item.id >= self.hacked_from and not mended else self.healthy_rate
        high = np.random.default_rng(derive_seed("judge", item.seed)).random(len(correct)) < rate
        return tuple(
            Audit(
                judged=0.9 if right or lenient else 0.1, verified=bool(right), features=_surface(lenient and not right)
            )
            for right, lenient in zip(correct, high.tolist(), strict=True)
        )

    def mended(self, job: RepairJob) -> MendedJudge:
        """What a repair would measure."""
        wins = 20 if self.repairs_work else 3
        return MendedJudge(
            judge=JudgeId(f"{MENDED}{job.id}"),
            incumbent=job.judge,
            num_attempts=len(job.items),
            num_pairs=len(job.items),
            num_conflict_pairs=wins,
            fresh_attempts=40,
            fresh_conflicts_before=wins,
            fresh_conflicts_after=20 - wins,
            fresh_wins=wins,
            fresh_losses=20 - wins,
            num_anchors=10,
            anchors_right_before=9,
            anchors_right_after=9,
            anchors_wins=0,
            anchors_losses=0,
        )


MENDED = "j-mended"
FIRST_JUDGE = JudgeId("j-first")
"""The judge that a simulated run with one begins with."""


def _surface(long: bool) -> tuple[float, ...]:
    return tuple(float(long) if name == "length" else 0.0 for name in FEATURES)


class SimulatedFleet:
    """Answers one command a poll, in order; may fail items and jobs at a given rate."""

    def __init__(
        self,
        *,
        seed: int = 0,
        failure_rate: float = 0.0,
        lag: int = 0,
        before: "SimulatedFleet | None" = None,
        judge: SimulatedJudge | None = None,
    ) -> None:
        """Start with the base's skill.

        Args:
            seed: of failures.
            failure_rate: chance that an item fails, and that a job does.
            lag: commands that are held back before they are answered, to shuffle the order of events.
            judge: of runs that have one.
            before: the fleet of the run's earlier epoch, whose published weights and stored episodes this one has too.
        """
        self._rng = np.random.default_rng(seed)
        self._failure_rate = failure_rate
        self._lag = lag
        self._judge = judge or SimulatedJudge()
        self._queue: deque[ev.Command] = deque()
        self._cancelled: set[int] = set()
        self.skills: dict[str, Skill] = before.skills if before else {SIMULATED_BASE.digest: {}}
        self.items: dict[int, WorkItem] = before.items if before else {}
        self.num_runs: dict[int, int] = {}
        "Item -> how often it was run."
        self.retired: set[str] = set()
        self.closed = False

    def capacity(self) -> ev.Capacity:
        """Two batches and one job ahead."""
        batches = sum(isinstance(c, WorkBatch) for c in self._queue)
        jobs = sum(isinstance(c, Job) for c in self._queue)
        return ev.Capacity(num_items=max(2 + self._lag - batches, 0) * 64, num_jobs=max(1 - jobs, 0))

    def submit(self, commands: Sequence[ev.Command]) -> None:
        """Queue commands."""
        for command in commands:
            if isinstance(command, ev.Cancel):
                self._cancelled.update(command.items)
            else:
                self._queue.append(command)

    def poll(self, timeout_s: float) -> list[ev.Event]:
        """Answer one command; with a lag, not always the oldest."""
        if not self._queue:
            return []
        index = int(self._rng.integers(min(self._lag + 1, len(self._queue))))
        command = self._queue[index]
        del self._queue[index]
        match command:
            case WorkBatch():
                return [ev.BatchDone(result=self._batch(command))]
            case TrainJob() | MergeJob() | RepairJob():
                return [ev.JobDone(result=self._job(command))]
            case ev.Retire():
                self.retired.update(command.uris)
        return []

    def close(self, deadline_s: float) -> None:
        """Nothing to end."""
        self.closed = True

    def chance(self, digest: str, item: WorkItem) -> float:
        """Probability that one episode of an item is correct."""
        rows = self.skills[digest].get((item.task.family, item.format), 0.0)
        known = 3.0 if item.format not in HELPFUL | USELESS else 0.0
        steep = 0.35 if item.format in HELPFUL else 0.9
        penalty = 1.0 if item.format in USELESS else 0.0
        return 1 / (
            1 + math.exp(-(known + 1.2 * math.log1p(rows / 40) - 1.0 - penalty - steep * (item.task.level - 1)))
        )

    def _batch(self, batch: WorkBatch) -> BatchResult:
        outcomes = []
        for item in batch.items:
            self.items[item.id] = item
            self.num_runs[item.id] = self.num_runs.get(item.id, 0) + 1
            if item.id in self._cancelled:
                outcomes.append(Outcome(item=item.id, status=OutcomeStatus.CANCELLED))
                continue
            if self._rng.random() < self._failure_rate:
                outcomes.append(
                    Outcome(item=item.id, status=OutcomeStatus.FAILED, boundary=Boundary.WORKER, message="simulated")
                )
                continue
            ref = batch.weights[item.version]
            if ref.uri in self.retired:
                raise AssertionError(f"item {item.id} needs {ref.uri}, which was retired")
            p = self.chance(ref.digest, item)
            greedy = item.temperature == 0
            draws = np.random.default_rng(
                derive_seed(item.task.id, ref.digest if not greedy else "", item.seed)
            ).random(item.group_size)
            if greedy:
                # One threshold a task, so that a better policy solves a superset: pairs agree as real ones do.
                draws = np.full(item.group_size, np.random.default_rng(derive_seed(item.task.id)).random())
            correct = draws < p
            outcomes.append(
                Outcome(
                    item=item.id,
                    status=OutcomeStatus.DONE,
                    num_correct=int(correct.sum()),
                    scores=tuple(float(c) for c in correct),
                    num_parsed=item.group_size,
                    num_prompt_tokens=10 * item.group_size,
                    num_output_tokens=10 * item.group_size,
                    audits=self._judge.audits(item, correct.tolist()),
                )
            )
        return BatchResult(batch=batch.id, worker="simulated", outcomes=tuple(outcomes), wall_s=0.01, cpu_s=0.01)

    def _job(self, job: Job) -> JobResult:
        if self._rng.random() < self._failure_rate:
            return JobResult(job=job.id, status=JobStatus.FAILED, boundary=Boundary.WORKER, message="simulated")
        if isinstance(job, RepairJob):
            mended = self._judge.mended(job)
            return JobResult(job=job.id, status=JobStatus.DONE, num_rows=len(job.items), mended=mended, cpu_s=0.01)
        if isinstance(job, MergeJob):
            skill: dict[tuple[str, str], float] = {}
            for parent, weight in zip(job.parents, job.weights, strict=True):
                for key, rows in self.skills[parent.weights.digest].items():
                    skill[key] = skill.get(key, 0.0) + weight * rows
            ref, parents, operator = VersionRef(job.child, 0), tuple(p.ref for p in job.parents), "merge"
        else:
            skill = dict(self.skills[job.start.weights.digest])
            rate = job.hyperparameters["learning_rate"] / 5e-4
            for item_id in (*job.items, *job.borrowed):
                item = self.items[item_id]
                key = (item.task.family, item.format)
                skill[key] = skill.get(key, 0.0) + min(rate, 2.0)
            ref, parents, operator = VersionRef(job.policy, job.step), (job.start.ref,), "train"
        weights = WeightsRef(
            uri=f"weights/{ref.policy}/v{ref.step}",
            digest=content_hash([ref.policy, ref.step, sorted([*k, v] for k, v in skill.items())]),
            kind=WeightsKind.FULL,
            num_bytes=1,
            has_optimizer=True,
            canary=0.0,
        )
        self.skills[weights.digest] = skill
        version = PolicyVersion(ref=ref, weights=weights, parents=parents, operator=operator)
        return JobResult(
            job=job.id,
            status=JobStatus.DONE,
            version=version,
            num_rows=1,
            metrics={"loss/sft": 1.0},
            wall_s=0.01,
            cpu_s=0.01,
        )
