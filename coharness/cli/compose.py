"""Where the framework meets the fleets: the only module of coharness that may import `actors` and `clusters`.

Both ways of carrying a run out have one shape: they block until the run ends, hand a status over about twice a second, and
ask twice a second whether someone wants the run to stop.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coharness.cli.stopping import Stop
from coharness.config.schema import RunConfig

if TYPE_CHECKING:
    from clusters.doctor import Finding
    from coharness.loop.engine import Engine, StopKind
    from coharness.reward.images.society import MakePool as MakeTrialPool
    from coharness.studies.cells import Launch
    from coharness.tune.api import MakePool
    from coharness.tune.config import TuneConfig

OnStatus = Callable[[Mapping[str, Any]], None]
ShouldStop = Callable[[], Stop | None]
POLL_S = 0.5
"""Seconds between two looks at a run in this process."""


def carry_out(
    run_dir: Path, config: RunConfig, *, resume: bool, on_status: OnStatus, should_stop: ShouldStop
) -> "StopKind":
    """Run, or go on with, the run in `run_dir` on the fleet that its config names; blocks until it ends.

    Raises:
        PreflightError: the Ray cluster cannot be reached, or its workers would run other code than this.
    """
    if config.fleet.type == "local":
        return _in_this_process(run_dir, resume, on_status, should_stop)
    return _on_ray(run_dir, resume, on_status, should_stop)


@contextmanager
def search_pool(config: "TuneConfig") -> "Iterator[MakePool]":
    """What builds the pool of a population-based search: processes of this machine, or, with a session around it, Ray actors.

    Raises:
        PreflightError: the Ray cluster cannot be reached, or its workers would run other code than this.
    """
    if config.pool.type == "ray":
        from actors.tune import ray_search

        with ray_search(config) as make_pool:
            yield make_pool
    else:
        from coharness.tune.api import default_pool

        yield default_pool


@contextmanager
def cell_launch(parallel: int, *, on_ray: bool) -> "Iterator[Launch]":
    """What starts the cells of a study: processes of this machine, or, with a session around it, Ray actors.

    Raises:
        PreflightError: the Ray cluster cannot be reached, is too small, or its workers would run other code than this.
    """
    if on_ray:
        from actors.cells import cells_on_ray

        with cells_on_ray(parallel) as launch:
            yield launch
    else:
        from coharness.studies.cells import start_here

        yield start_here


@contextmanager
def trial_pool(workers: int, *, deadline_s: float, on_ray: bool) -> "Iterator[MakeTrialPool]":
    """What opens the pool that judges trials of libraries: threads of this process, or, with a session around it, Ray actors.

    Raises:
        PreflightError: the Ray cluster cannot be reached, is too small, or its workers would run other code than this.
    """
    if on_ray:
        from actors.library import trials_on_ray

        with trials_on_ray(workers, deadline_s) as open_pool:
            yield lambda spec, _: open_pool(spec)
    else:
        from coharness.reward.library.trial_pool import ThreadPool

        yield lambda _, judge: ThreadPool(judge, workers)


def _in_this_process(run_dir: Path, resume: bool, on_status: OnStatus, should_stop: ShouldStop) -> "StopKind":
    """The run goes on in a thread of its own, so that this one can draw and hear signals."""
    from concurrent.futures import ThreadPoolExecutor, wait

    from coharness.loop.local_run import run_local

    engines: list[Engine] = []
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="run") as pool:
        running = pool.submit(run_local, run_dir, resume, engines.append)
        while not running.done():
            wait([running], POLL_S)
            for engine in engines:
                stop = should_stop()
                if stop is not None:
                    engine.request_stop(stop.reason, stop.hard)
                status = engine.status()
                if status:
                    on_status(status)
    return running.result()


def machine_findings(*, with_ray: bool) -> "list[Finding]":
    """What the doctor finds on this machine; with `with_ray` a local Ray is started and ended, too."""
    from clusters.doctor import run_doctor
    from coharness import __file__ as package

    return run_doctor(Path(package).resolve().parents[1], with_ray=with_ray)


def _on_ray(run_dir: Path, resume: bool, on_status: OnStatus, should_stop: ShouldStop) -> "StopKind":
    from actors.api import StopRequest, run_on_ray

    def stop_request() -> StopRequest | None:
        stop = should_stop()
        return None if stop is None else StopRequest(reason=stop.reason, hard=stop.hard)

    return run_on_ray(run_dir, resume, on_status, stop_request)
