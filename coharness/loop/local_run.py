"""A whole run in this process, on the in-process fleet."""

from collections.abc import Callable
from pathlib import Path

from coharness.loop.build import (
    build_engine,
    build_job_runner,
    build_rollout_worker,
    open_replay_store,
    open_weight_store,
)
from coharness.loop.engine import Engine, StopKind
from coharness.loop.local_fleet import LocalFleet
from coharness.loop.run_dir import RunDir


def run_local(run_dir: Path, resume: bool = False, on_engine: Callable[[Engine], None] | None = None) -> StopKind:
    """Run, or go on with, the run in `run_dir` (made by `RunDir.create`).

    Args:
        run_dir: the run's folder.
        resume: whether to go on with what its journal holds.
        on_engine: is given the engine before it starts, to watch or stop it from another thread.
    """
    run = RunDir.open(run_dir)
    config = run.load_config()
    epoch = run.acquire_lease()
    replay = open_replay_store(run.path, epoch)
    fleet = LocalFleet(
        worker=build_rollout_worker(config, run.path, "local"),
        jobs=build_job_runner(config, run.path, replay),
        replay=replay,
        weights=open_weight_store(run.path),
        batch_items=config.fleet.batch_items,
    )
    engine = build_engine(run.path, fleet, epoch, resume)
    if on_engine is not None:
        on_engine(engine)
    return engine.run()
