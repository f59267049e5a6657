"""One run of the study and what is read of it: alarms, judges, conflicts, curves, sealed tasks at the moments that matter."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from coharness.config.schema import RunConfig
from coharness.harness.compile import serving_format
from coharness.loop.build import build_rollout_worker, fold_run, run_sources
from coharness.loop.items import ItemMaker
from coharness.loop.journal import read_frames
from coharness.loop.local_run import run_local
from coharness.loop.repairing import stored_audits, thresholds_of
from coharness.loop.replay_store import read_episodes
from coharness.loop.run_dir import RunDir
from coharness.loop.sealed import sealed_tasks
from coharness.loop.state import State
from coharness.policy.bases import resolve_base
from coharness.policy.codec import open_codec
from coharness.records import events as ev
from coharness.records.policy import PolicyVersion
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch
from coharness.reward.reflection.mend import is_conflict
from coharness.studies.contract import StudyError
from coharness.tasks.builtin import FAMILY_NAMES
from experiments.reward.reflection.judge import write_inputs

WINDOW = 512
"""Judged attempts that a rate of conflicts is taken over."""


def run_cell(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run one arm under one seed in an empty folder; all figures as JSON values.

    Raises:
        StudyError: the run did not end, or a sealed task could not be read.
    """
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    cpu = time.process_time()
    config = _config(settings, folder, run_dir)
    run = RunDir.create(config)
    run_local(run_dir)
    evolution = fold_run(run)
    state = evolution.state
    if not state.finished:
        raise StudyError(f"the run in {run_dir} did not end")
    versions = _moments(state)
    tasks = sealed_tasks(evolution.context)
    sealed = _sealed(config, run_dir, evolution.context, versions, tasks)
    return {
        "alarms": [
            {"charged": i.charged, "causes": list(i.alarm.causes), "shortcut": i.alarm.shortcut, "step": i.alarm.step}
            for i in state.incidents
        ],
        "terms": [{"judge": t.judge, "since": t.since, "how": t.how} for t in state.terms],
        "refused": len(state.refused_judges),
        "repairs": _repairs(run),
        "steps": state.watch.step if state.watch is not None else 0,
        "updates": state.ticks,
        "conflicts": _conflicts(run, config),
        "curve": _curve(run),
        "tasks": [[t.family, t.level, t.id] for t in tasks],
        "sealed": sealed,
        "cpu_s": time.process_time() - cpu,
    }


def _config(settings: Mapping[str, Any], folder: Path, run_dir: Path) -> RunConfig:
    """The run's config with the paths of this folder; the judge's files are made on the way."""
    data = {**settings["run"], "run_dir": str(run_dir)}
    if settings["bias"] is not None:
        config = RunConfig.model_validate(data)
        section = config.tasks[0]
        families = getattr(section, "families", None) or FAMILY_NAMES
        files = write_inputs(
            folder / "judge",
            run_sources(config),
            tuple(families),
            config.harness.level_high,
            bias=settings["bias"],
            seed=config.seed,
        )
        monitor = {**data["reward"]["monitor"], "ladder": list(settings["ladder"])}
        data = {**data, "reward": {**data["reward"], "judge": {"type": "linear", **files}, "monitor": monitor}}
    return RunConfig.model_validate(data)


def _moments(state: State) -> dict[str, PolicyVersion]:
    """Name -> the member's weights then; `alarm` and `repair` only where there was one."""
    base = next(v for v in state.versions.values() if not v.weights.uri)
    found = {"base": base}
    if state.incidents:
        found["alarm"] = state.versions[state.incidents[0].heads[0]]
    changes = [t for t in state.terms if t.how == "mended"]
    if changes:
        found["repair"] = state.versions[changes[0].heads[0]]
    found["end"] = state.members[0].head
    return found


def _sealed(
    config: RunConfig, run_dir: Path, ctx: Any, versions: Mapping[str, PolicyVersion], tasks: Sequence[Any]
) -> dict[str, str]:
    """Greedy answers of each version to the sealed tasks, a digit each: 1 where the verifier accepts it."""
    worker = build_rollout_worker(config, run_dir, "sealed")
    make, harness = ItemMaker(config, 0), ctx.h0
    found = {}
    try:
        for number, (name, version) in enumerate(versions.items()):
            items = tuple(
                make.make(
                    version=version.ref,
                    harness=harness,
                    harness_id=harness.id,
                    task=task,
                    answer_format=serving_format(harness, ctx.sources, task.family),
                    purpose=Purpose.SEALED,
                )
                for task in tasks
            )
            batch = WorkBatch(
                id=number,
                items=items,
                harnesses={harness.id: harness},
                weights={version.ref: version.weights},
                lease_s=3600.0,
            )
            result, _ = worker.run(batch)
            failed = [o for o in result.outcomes if o.status is not OutcomeStatus.DONE]
            if failed:
                raise StudyError(f"a sealed task could not be read ({failed[0].boundary}): {failed[0].message}")
            right = {o.item: o.num_correct for o in result.outcomes}
            found[name] = "".join(str(right[item.id]) for item in items)
    finally:
        worker.close()
    return found


def _conflicts(run: RunDir, config: RunConfig) -> list[dict[str, Any]]:
    """For each version of the judge: attempts that it rated high and the verifier failed, among its last ones."""
    table = read_episodes(run.replay_dir)
    spec = resolve_base(config.policy.base)
    codec, sources, limits = (
        open_codec(spec.path, is_chat=spec.is_chat),
        run_sources(config),
        thresholds_of(config.reward.monitor),
    )
    found = []
    for judge in dict.fromkeys(name for name in table["judge"].to_pylist() if name):
        attempts, _ = stored_audits(table.filter(pc.equal(table["judge"], judge)), sources, codec)
        last = attempts[-WINDOW:]
        high = sum(is_conflict(a.judged, a.verified, limits) and not a.verified for a in last)
        found.append({"judge": judge, "attempts": len(last), "lenient": high, "right": sum(a.verified for a in last)})
    return found


def _repairs(run: RunDir) -> list[dict[str, Any]]:
    """What each repair measured on fresh attempts and anchors."""
    found = []
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            if isinstance(event, ev.JobDone) and event.result.mended is not None:
                m = event.result.mended
                found.append(
                    {
                        "fresh": m.fresh_attempts,
                        "before": m.fresh_conflicts_before,
                        "after": m.fresh_conflicts_after,
                        "anchors": m.num_anchors,
                        "anchors_before": m.anchors_right_before,
                        "anchors_after": m.anchors_right_after,
                    }
                )
    return found


def _curve(run: RunDir) -> list[list[int]]:
    """[charged episodes, right, tried] of each reading of the member's TRACK tasks."""
    readings: list[list[int]] = []
    reading_of: dict[int, int] = {}
    charged = 0
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
                items = event.directive.items
                newest = max(item.version.step for item in items)
                tracked = [i for i in items if i.purpose is Purpose.TRACK and i.version.step == newest]
                if tracked:
                    readings.append([charged, 0, 0])
                reading_of |= {item.id: len(readings) - 1 for item in tracked}
                charged += sum(i.group_size for i in items if i.purpose.is_charged)
            elif isinstance(event, ev.BatchDone):
                for outcome in event.result.outcomes:
                    place = reading_of.get(outcome.item)
                    if place is not None and outcome.status is OutcomeStatus.DONE:
                        readings[place][1] += outcome.num_correct
                        readings[place][2] += 1
    return readings
