"""Owns the fold of work into figures: spend, throughput, staleness, load of workers, overlap and failures.

`coharness.report.history` drives it with the leases, batches and jobs of a journal in their order. Invariant: an item
or job is in flight from its `Issued` to its end, once; an end of something unknown is counted as a stray, not guessed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum

from coharness.records.errors import Boundary
from coharness.records.ids import ItemId, JobId
from coharness.records.training import Job, JobResult, JobStatus, TrainJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, Purpose, WorkItem
from coharness.report.timeline import FailureCount, Moment, Overlap, Spend, Staleness, Throughput, WorkerLoad

THROUGHPUT_WINDOW_S = 10.0


class Lane(StrEnum):
    """The three kinds of work that an asynchronous run does beside each other."""

    ROLLOUT = "rollout"
    "Episodes to train on or to learn from."
    TRAIN = "train"
    "Updates and merges."
    GATE = "gate"
    "Paired tests: gate, race, null, anchors."


_LANES = {
    Purpose.GATE: Lane.GATE,
    Purpose.RACE: Lane.GATE,
    Purpose.NULL: Lane.GATE,
    Purpose.ANCHOR: Lane.GATE,
    Purpose.CHOOSE: Lane.GATE,
}


class Activity:
    """Folds work; one instance a journal."""

    def __init__(self) -> None:
        self.num_rollouts = 0
        self.num_updates = 0
        self.num_strays = 0
        self.num_quarantined = 0
        self.rollout_cpu_s = 0.0
        self.training_cpu_s = 0.0
        self._open_items: dict[ItemId, WorkItem] = {}
        self._open_jobs: dict[JobId, Job] = {}
        self._steps: dict[ItemId, tuple[str, int]] = {}
        self._spend: dict[Purpose, Counter[str]] = defaultdict(Counter)
        self._windows: dict[int, Counter[str]] = defaultdict(Counter)
        self._workers: dict[str, Counter[str]] = defaultdict(Counter)
        self._worker_s: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._staleness: list[Staleness] = []
        self._failures: dict[Boundary, Counter[str]] = defaultdict(Counter)
        self._examples: dict[Boundary, str] = {}
        self._in_flight: Counter[Lane] = Counter()
        self._last_s = 0.0
        self._overlap_s = 0.0
        self._running: list[tuple[float, float, Lane]] = []

    def leased(self, items: Iterable[WorkItem], at: Moment) -> None:
        """Fold a lease; an item that is leased again after a resume is in flight already."""
        self._advance(at)
        for item in items:
            if item.id not in self._open_items:
                self._open_items[item.id] = item
                self._in_flight[_LANES.get(item.purpose, Lane.ROLLOUT)] += 1

    def job_issued(self, job: Job, at: Moment) -> None:
        """Fold the start of a job."""
        self._advance(at)
        if job.id not in self._open_jobs:
            self._open_jobs[job.id] = job
            self._in_flight[Lane.TRAIN] += 1

    def batch_done(self, result: BatchResult, at: Moment) -> list[tuple[WorkItem, Outcome]]:
        """Fold a batch and give its items with their outcomes."""
        self._advance(at)
        self.rollout_cpu_s += result.cpu_s
        ended, lanes = [], set()
        window = self._windows[int(at.elapsed_s // THROUGHPUT_WINDOW_S)]
        load = self._workers[result.worker]
        load["batches"] += 1
        self._worker_s[result.worker][0] += result.wall_s
        self._worker_s[result.worker][1] += result.cpu_s
        for outcome in result.outcomes:
            item = self._open_items.pop(outcome.item, None)
            if item is None:
                self.num_strays += 1
                continue
            lane = _LANES.get(item.purpose, Lane.ROLLOUT)
            self._in_flight[lane] -= 1
            lanes.add(lane)
            spend = self._spend[item.purpose]
            spend[outcome.status] += 1
            if outcome.status is OutcomeStatus.DONE:
                for counter in (spend, window, load):
                    counter["episodes"] += item.group_size
                    counter["output_tokens"] += outcome.num_output_tokens
                spend["prompt_tokens"] += outcome.num_prompt_tokens
                if item.purpose.is_charged:
                    self.num_rollouts += item.group_size
                if item.purpose is Purpose.TRAIN:
                    self._steps[item.id] = (item.version.policy, item.version.step)
            elif outcome.status is OutcomeStatus.FAILED:
                self._failed(outcome.boundary, outcome.message, "items")
            ended.append((item, outcome))
        self._running += [(at.elapsed_s - result.wall_s, at.elapsed_s, lane) for lane in lanes]
        return ended

    def job_done(self, result: JobResult, at: Moment) -> Job | None:
        """Fold the end of a job and give the job, None where its start is not in the journal."""
        self._advance(at)
        self.training_cpu_s += result.cpu_s
        job = self._open_jobs.pop(result.job, None)
        if job is None:
            self.num_strays += 1
            return None
        self._in_flight[Lane.TRAIN] -= 1
        self._running.append((at.elapsed_s - result.wall_s, at.elapsed_s, Lane.TRAIN))
        match result.status:
            case JobStatus.DONE if isinstance(job, TrainJob):
                self.num_updates += 1
                behind = self._versions_behind(job)
                if behind:
                    self._staleness.append(Staleness(at=at, policy=job.policy, versions_behind=behind))
            case JobStatus.QUARANTINED:
                self.num_quarantined += 1
            case JobStatus.FAILED:
                self._failed(result.boundary, result.message, "jobs")
        return job

    def _versions_behind(self, job: TrainJob) -> tuple[int, ...]:
        own = (self._steps.get(item) for item in job.items)
        return tuple(job.start.ref.step - step for policy, step in filter(None, own) if policy == job.policy)

    def _failed(self, boundary: Boundary | None, message: str, what: str) -> None:
        boundary = boundary or Boundary.WORKER
        self._failures[boundary][what] += 1
        self._examples[boundary] = message

    def _advance(self, at: Moment) -> None:
        if at.elapsed_s > self._last_s:
            if sum(count > 0 for count in self._in_flight.values()) >= 2:
                self._overlap_s += at.elapsed_s - self._last_s
            self._last_s = at.elapsed_s

    def spend(self) -> dict[Purpose, Spend]:
        """What each purpose cost, in the order of `Purpose`."""
        return {
            purpose: Spend(
                num_done=self._spend[purpose][OutcomeStatus.DONE],
                num_failed=self._spend[purpose][OutcomeStatus.FAILED],
                num_cancelled=self._spend[purpose][OutcomeStatus.CANCELLED],
                num_episodes=self._spend[purpose]["episodes"],
                num_prompt_tokens=self._spend[purpose]["prompt_tokens"],
                num_output_tokens=self._spend[purpose]["output_tokens"],
            )
            for purpose in Purpose
            if purpose in self._spend
        }

    def throughput(self, end_s: float) -> tuple[Throughput, ...]:
        """Windows from the start to `end_s`, idle ones included."""
        num_windows = max(max(self._windows, default=-1), int(end_s // THROUGHPUT_WINDOW_S)) + 1
        starts = [i * THROUGHPUT_WINDOW_S for i in range(num_windows)]
        return tuple(
            Throughput(
                start_s=start,
                width_s=min(THROUGHPUT_WINDOW_S, end_s - start),
                num_episodes=self._windows[i]["episodes"],
                num_output_tokens=self._windows[i]["output_tokens"],
            )
            for i, start in enumerate(starts)
            if end_s > start
        )

    def staleness(self) -> tuple[Staleness, ...]:
        """One record an update that trained on own groups."""
        return tuple(self._staleness)

    def workers(self) -> tuple[WorkerLoad, ...]:
        """Load of each rollout worker, by name."""
        return tuple(
            WorkerLoad(
                name=name,
                num_batches=counts["batches"],
                num_episodes=counts["episodes"],
                num_output_tokens=counts["output_tokens"],
                wall_s=self._worker_s[name][0],
                cpu_s=self._worker_s[name][1],
            )
            for name, counts in sorted(self._workers.items())
        )

    def failures(self) -> tuple[FailureCount, ...]:
        """Failures by boundary, the most frequent first."""
        counts = [
            FailureCount(boundary=b, num_items=c["items"], num_jobs=c["jobs"], example=self._examples[b])
            for b, c in self._failures.items()
        ]
        return tuple(sorted(counts, key=lambda f: (-f.num_items - f.num_jobs, f.boundary)))

    def overlap(self, end: Moment) -> Overlap:
        """Both readings of overlap up to `end`."""
        self._advance(end)
        return Overlap(total_s=end.elapsed_s, in_flight_s=self._overlap_s, running_s=_time_with_two(self._running))


def _time_with_two(spans: list[tuple[float, float, Lane]]) -> float:
    """Seconds covered by spans of at least two different lanes."""
    edges = sorted((edge, change, lane) for a, b, lane in spans for edge, change in ((max(0.0, a), 1), (b, -1)))
    active: Counter[Lane] = Counter()
    covered = last = 0.0
    for edge, change, lane in edges:
        if sum(count > 0 for count in active.values()) >= 2:
            covered += edge - last
        active[lane] += change
        last = edge
    return covered
