"""Our side of one measurement, a process of its own: a run as `coharness run` carries it out, its warm-up left out.

    python -m experiments.benchmarks.loop.ours SPEC.json

SPEC holds the run's config, the lengths of answers (None where they end by themselves), the updates that warm up and that are
measured, and may name a file for the prompts. Prints one JSON object. What is measured is read from the journal that every run
keeps: an update counts once the core's record of it is durable. CPU time is that of this process and of everything that it
started, Ray's own processes included.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.config.schema import RunConfig
from coharness.loop.build import run_sources
from coharness.loop.journal import read_frames
from coharness.loop.replay_store import read_episodes
from coharness.loop.run_dir import RunDir
from coharness.records import events as ev
from coharness.records.ids import ItemId, JobId
from coharness.records.training import JobResult, JobStatus, TrainJob
from coharness.records.work import Outcome, WorkItem
from coharness.studies.contract import StudyError
from experiments.benchmarks.loop.meter import Meter

END_S = 600.0
"""A run that was told to stop and does not is hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update of the one member, as the journal tells it."""

    job: TrainJob
    result: JobResult
    at: float
    "Wall clock when the record of it was made durable, seconds since 1970."


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What the journal of a run tells: updates in order, items and outcomes by id, and CPU seconds of rollouts."""

    updates: list[Update]
    items: dict[ItemId, WorkItem]
    outcomes: dict[ItemId, Outcome]


def measure(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Carry the run out and read its window.

    Raises:
        StudyError: the run ended early, or an update failed.
    """
    config = RunConfig.model_validate(spec["config"])
    warm, counted = int(spec["warm_updates"]), int(spec["updates"])
    run = RunDir.create(config)
    meter = Meter()
    meter.start()
    carry_out = _on_ray if config.fleet.type == "ray" else _in_process
    carry_out(run, spec["lengths"], warm + counted)
    meter.stop()
    course = read_course(run)
    if spec["prompts_to"] is not None:
        Path(spec["prompts_to"]).write_text(json.dumps(trained_on(run, course)), encoding="utf-8")
    head = course.updates[-1].result.version
    assert head is not None, "an update that is done has a version"
    found = window(course, meter, warm, counted)
    written = (course.outcomes[item].num_output_tokens for update in course.updates for item in update.job.items)
    return {
        **found,
        "all_updates": len(course.updates),
        "all_tokens": sum(written),
        "head": str(run.path / head.weights.uri),
    }


def read_course(run: RunDir) -> Course:
    """What the journal tells."""
    jobs: dict[JobId, TrainJob] = {}
    course = Course(updates=[], items={}, outcomes={})
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            match event:
                case ev.Issued(directive=ev.Lease(items=items)):
                    course.items.update((item.id, item) for item in items)
                case ev.Issued(directive=ev.Train(job=job)):
                    jobs[job.id] = job
                case ev.BatchDone(result=batch):
                    course.outcomes.update((outcome.item, outcome) for outcome in batch.outcomes)
                case ev.JobDone(result=result):
                    if result.status is not JobStatus.DONE:
                        raise StudyError(
                            f"update {result.job} of {run.path} ended as {result.status}: {result.message}"
                        )
                    course.updates.append(Update(job=jobs[result.job], result=result, at=frame.time))
    return course


def window(course: Course, meter: Meter, warm: int, counted: int) -> dict[str, Any]:
    """Speed, cost and staleness between update `warm` and `counted` updates later.

    Raises:
        StudyError: there are not so many updates.
    """
    if len(course.updates) < warm + counted:
        raise StudyError(f"the run ended after {len(course.updates)} updates, expected {warm + counted}; see its logs")
    begin, end = course.updates[warm - 1].at, course.updates[warm + counted - 1].at
    cpu = meter.between(begin, end)
    seen = course.updates[warm : warm + counted]
    trained = [(update.job, course.items[item], course.outcomes[item]) for update in seen for item in update.job.items]
    behind = [job.start.ref.step - item.version.step for job, item, _ in trained]
    return {
        "seconds": end - begin,
        "cpu_s": sum(cpu.values()),
        "cpu_by_role": cpu,
        "updates": counted,
        "trajectories": sum(item.group_size for _, item, _ in trained),
        "rows": sum(update.result.num_rows for update in seen),
        "tokens": sum(outcome.num_output_tokens for _, _, outcome in trained),
        "trainer_wall_s": sum(update.result.wall_s for update in seen),
        "trainer_cpu_s": sum(update.result.cpu_s for update in seen),
        "staleness_mean": sum(behind) / len(behind),
        "staleness_max": max(behind),
    }


def trained_on(run: RunDir, course: Course) -> dict[str, list[Any]]:
    """Token ids of all prompts in the order in which they were trained on, and the answers that were expected."""
    items = [item for update in course.updates for item in update.job.items]
    table = read_episodes(run.replay_dir, items)
    found: dict[int, list[int]] = {}
    columns = (table.column(name).to_pylist() for name in ("item", "token_ids", "prompt_length"))
    for item, ids, length in zip(*columns, strict=True):
        found.setdefault(item, ids[:length])
    sources = run_sources(run.load_config())
    return {
        "prompts": [found[item] for item in items],
        "expected": [sources.make(course.items[item].task).answer for item in items],
    }


def _on_ray(run: RunDir, lengths: str | None, num_updates: int) -> None:
    from actors.api import StopRequest, run_on_ray
    from actors.options import Factories
    from experiments.benchmarks.loop.forced import FACTORY

    last: dict[str, Any] = {}

    def should_stop() -> StopRequest | None:
        return StopRequest(reason="enough was measured", hard=True) if last.get("updates", 0) >= num_updates else None

    factories = Factories() if lengths is None else Factories(rollout=FACTORY + lengths)
    run_on_ray(run.path, False, last.update, should_stop, factories=factories)


def _in_process(run: RunDir, lengths: str | None, num_updates: int) -> None:
    """As `coharness.loop.local_run` does, with the rollout worker of these lengths."""
    from coharness.loop.build import (
        build_engine,
        build_job_runner,
        build_rollout_worker,
        open_replay_store,
        open_weight_store,
    )
    from coharness.loop.local_fleet import LocalFleet
    from experiments.benchmarks.loop import forced

    config, epoch = run.load_config(), run.acquire_lease()
    replay = open_replay_store(run.path, epoch)
    build = build_rollout_worker if lengths is None else {"fixed": forced.fixed, "tail": forced.tail}[lengths]
    fleet = LocalFleet(
        worker=build(config, run.path, "local"),
        jobs=build_job_runner(config, run.path, replay),
        replay=replay,
        weights=open_weight_store(run.path),
        batch_items=config.fleet.batch_items,
    )
    engine = build_engine(run.path, fleet, epoch, False)
    running = threading.Thread(target=engine.run, name="run")
    running.start()
    while running.is_alive() and engine.status().get("updates", 0) < num_updates:
        running.join(0.5)
    engine.request_stop("enough was measured", hard=True)
    running.join(END_S)


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.sched_setaffinity(0, given["cores"])
    print(json.dumps(measure(given)))
