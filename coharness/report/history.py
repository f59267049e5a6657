"""Owns the projection from a run's journal to its `History`; report, terminal summary, metrics and watch read it.

A pure fold over frames, never read back for a decision. The time of an event is that of the `Tick` in its frame, or of the
last one before where its frame has none, so the same journal always gives the same history. An event that refers to
something unknown leaves a warning in the history instead of stopping the report.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coharness.loop.journal import Frame, read_frames
from coharness.loop.run_dir import RunDir
from coharness.records.events import (
    Appoint,
    Asked,
    BatchDone,
    Cancel,
    Clone,
    Decide,
    Directive,
    Event,
    Finish,
    Issued,
    JobDone,
    Lease,
    Merge,
    Open,
    Repair,
    Respond,
    Resumed,
    Retire,
    Spawn,
    Started,
    StopRequested,
    Tick,
    Train,
    WorkerLost,
)
from coharness.records.ids import ItemId
from coharness.records.training import JobResult, MergeJob, TrainJob
from coharness.records.work import Outcome, OutcomeStatus, Purpose, Serving, WorkItem
from coharness.report.activity import Activity
from coharness.report.population import Population
from coharness.report.timeline import History, JudgeMove, Moment, Tally, TrackReading, WorkerLoss


def read_history(run_dir: Path | str) -> History:
    """Fold the journal of a run directory; a run that was stopped before its first event gives an empty history.

    Raises:
        ConfigError: the folder is no run directory.
        JournalError: the journal is damaged or newer than this code.
    """
    run = RunDir.open(run_dir)
    frames = read_frames(run.journal_dir) if run.journal_dir.is_dir() else ()
    return project(frames, run_id=run.run_id, config=run.load_config().model_dump(mode="json"))


def project(frames: Iterable[Frame], *, run_id: str, config: Mapping[str, Any]) -> History:
    """Fold frames in journal order; `run_id` and `config` (JSON values) stand in until `Started` says them."""
    projection = _Projection(run_id, config)
    for frame in frames:
        projection.fold(frame)
    return projection.history()


class _Track:
    """TRACK items by reading: those of one lease under one serving pairing."""

    def __init__(self) -> None:
        self._readings: list[tuple[Moment, Serving, bool]] = []
        self._cells: list[dict[tuple[str, int], Tally]] = []
        self._tokens: list[int] = []
        self._reading_of: dict[ItemId, int] = {}

    def issued(self, items: Iterable[WorkItem], champion: Serving | None, at: Moment) -> None:
        opened: dict[Serving, int] = {}
        for item in items:
            if item.purpose is Purpose.TRACK and item.id not in self._reading_of:
                serving = Serving(item.version, item.harness)
                if serving not in opened:
                    opened[serving] = len(self._readings)
                    self._readings.append((at, serving, serving == champion))
                    self._cells.append({})
                    self._tokens.append(0)
                self._reading_of[item.id] = opened[serving]

    def ended(self, item: WorkItem, outcome: Outcome) -> None:
        if item.purpose is Purpose.TRACK and outcome.status is OutcomeStatus.DONE:
            i, cell = self._reading_of[item.id], (item.task.family, item.task.level)
            tally = Tally(num_correct=outcome.num_correct, num_tasks=item.group_size)
            self._cells[i][cell] = self._cells[i].get(cell, Tally()) + tally
            self._tokens[i] += outcome.num_output_tokens

    def readings(self, *, is_champion: bool) -> tuple[TrackReading, ...]:
        return tuple(
            TrackReading(at=at, serving=serving, cells=dict(sorted(cells.items())), num_output_tokens=tokens)
            for (at, serving, serves), cells, tokens in zip(self._readings, self._cells, self._tokens, strict=True)
            if cells and serves == is_champion
        )


class _Projection:
    """Folds events; one instance a journal."""

    def __init__(self, run_id: str, config: Mapping[str, Any]) -> None:
        self._run_id, self._config = run_id, config
        self._seed, self._code_digest = int(config["seed"]), ""
        self._started_at: float | None = None
        self._elapsed_s = 0.0
        self._activity = Activity()
        self._population = Population()
        self._track = _Track()
        self._losses: list[WorkerLoss] = []
        self._judge_moves: list[JudgeMove] = []
        self._finish: str | None = None
        self._stop: str | None = None
        self._num_events, self._num_epochs = 0, 1
        self._decision_cpu_s = 0.0

    def fold(self, frame: Frame) -> None:
        if self._started_at is None:
            self._started_at = frame.time
        for event in frame.events:
            if isinstance(event, Tick):
                # A frame holds what happened first and its Tick behind; all of it happened at that time.
                self._elapsed_s = max(self._elapsed_s, event.elapsed_s)
        for event in frame.events:
            self._num_events += 1
            self._event(event)

    def _now(self) -> Moment:
        return Moment(
            elapsed_s=self._elapsed_s, rollouts=self._activity.num_rollouts, updates=self._activity.num_updates
        )

    def _event(self, event: Event) -> None:
        match event:
            case Started():
                self._run_id, self._seed, self._config = event.run_id, event.seed, event.config
                self._code_digest = event.code_digest
                self._population.founded(
                    int(event.config["population"]["num_policies"]), event.base.digest, self._now()
                )
            case Resumed():
                self._num_epochs += 1
                self._stop = None
            case Tick():
                self._decision_cpu_s = max(self._decision_cpu_s, event.cpu_s)
            case Issued():
                self._issued(event.directive)
            case BatchDone():
                for item, outcome in self._activity.batch_done(event.result, self._now()):
                    self._track.ended(item, outcome)
            case JobDone():
                self._job_done(event.result)
            case WorkerLost():
                self._losses.append(
                    WorkerLoss(at=self._now(), worker=event.worker, reason=event.reason, num_items=event.num_items)
                )
            case StopRequested():
                self._stop = event.reason
            case Asked():
                pass

    def _issued(self, directive: Directive) -> None:
        now = self._now()
        match directive:
            case Lease():
                self._activity.leased(directive.items, now)
                self._population.registered(directive.harnesses)
                champions = self._population.champions
                self._track.issued(directive.items, champions[-1].serving if champions else None, now)
            case Train() | Merge() | Repair():
                self._activity.job_issued(directive.job, now)
            case Clone():
                self._population.cloned(directive, now)
            case Spawn():
                self._population.spawned(directive, now)
            case Open():
                self._population.opened(directive, now)
            case Decide():
                self._population.decided(directive.verdict, now)
            case Finish():
                self._finish = directive.reason
            case Respond():
                alarm = directive.alarm
                detail = "" if alarm is None else ", ".join(alarm.causes)
                if alarm is not None and alarm.shortcut is not None:
                    detail += f"; the judge follows {alarm.shortcut}"
                what = "calm" if alarm is None else "alarm"
                self._judge_moves.append(JudgeMove(at=now, what=what, detail=detail, rung=directive.rung.value))
            case Appoint():
                what = "mended" if directive.accepted else "refused"
                self._judge_moves.append(JudgeMove(at=now, what=what, detail=f"{directive.judge}: {directive.reason}"))
            case Cancel() | Retire():
                pass

    def _job_done(self, result: JobResult) -> None:
        job = self._activity.job_done(result, self._now())
        if job is None or result.version is None:
            return
        if isinstance(job, TrainJob):
            self._population.trained(job, result.version, result.metrics, self._now())
        elif isinstance(job, MergeJob):
            self._population.merged(job, result.version, result.metrics, self._now())

    def history(self) -> History:
        end, activity = self._now(), self._activity
        strays = (
            [f"{activity.num_strays} ends of work whose start is not in the journal"] if activity.num_strays else []
        )
        return History(
            run_id=self._run_id,
            seed=self._seed,
            config=self._config,
            code_digest=self._code_digest,
            started_at=self._started_at or 0.0,
            end=end,
            finish=self._finish,
            stop=self._stop,
            num_events=self._num_events,
            num_epochs=self._num_epochs,
            policies=self._population.policies(),
            genomes=self._population.genomes,
            harness_spans=self._population.harness_spans(),
            proposals=self._population.proposals(),
            champions=tuple(self._population.champions),
            track=self._track.readings(is_champion=True),
            member_track=self._track.readings(is_champion=False),
            spend=activity.spend(),
            throughput=activity.throughput(end.elapsed_s),
            staleness=activity.staleness(),
            workers=activity.workers(),
            overlap=activity.overlap(end),
            failures=activity.failures(),
            losses=tuple(self._losses),
            rollout_cpu_s=activity.rollout_cpu_s,
            training_cpu_s=activity.training_cpu_s,
            decision_cpu_s=self._decision_cpu_s,
            num_quarantined=activity.num_quarantined,
            judge_moves=tuple(self._judge_moves),
            warnings=(*strays, *self._population.strays),
        )
