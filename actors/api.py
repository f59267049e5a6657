"""Runs on Ray, from the outside: what the command line calls.

Opens the session, ends what an older epoch left, starts the coordinator, and then only watches: the run itself needs this
process no more than for owning a cluster that it started. All it learns of a run comes through `status`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.coordinator import Coordinator
from actors.options import NAMESPACE, Deadlines, Factories, coordinator_name, thread_env, trainer_cores
from actors.session import session
from actors.workers import cause_of, end_actors, end_left
from coharness.config.schema import RunConfig
from coharness.loop.engine import StopKind
from coharness.loop.run_dir import RunDir
from coharness.records.errors import CoharnessError, PreflightError

_log = logging.getLogger(__name__)
STATUS_EVERY_S = 0.5
STATUS_S = 30.0
"""A coordinator that does not answer for so long is reported, and waited for all the same: it may be writing."""
START_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """A person's wish that the run stop."""

    reason: str
    hard: bool = False
    "At once, instead of after a drain."


def run_on_ray(
    run_dir: Path,
    resume: bool,
    on_status: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], StopRequest | None],
    *,
    factories: Factories | None = None,
    deadlines: Deadlines | None = None,
) -> StopKind:
    """Run, or go on with, the run in `run_dir` (made by `RunDir.create`); returns when it ends.

    Args:
        run_dir: the run's folder, seen by every node.
        resume: whether to go on with what its journal holds.
        on_status: is given `Engine.status()` about twice a second.
        should_stop: is asked as often; every new request is passed on, so a second one may be harder than the first.
        factories: what the actors build.
        deadlines: how long anything is waited for.

    Raises:
        PreflightError: the cluster is too small, its workers run other code, or the run is being driven by someone else.
        CoharnessError: the run broke, or its coordinator died; the message says how to go on.
    """
    run = RunDir.open(run_dir)
    config = run.load_config()
    with session(num_cpus=cores(config), threads_per_worker=config.fleet.threads_per_worker):
        return drive(run, resume, on_status, should_stop, factories or Factories(), deadlines or Deadlines.of(config))


def cores(config: RunConfig) -> int:
    """Cores that the workers of a run ask for together."""
    return config.fleet.rollout_workers * config.fleet.threads_per_worker + config.fleet.trainers * trainer_cores(
        config
    )


def drive(
    run: RunDir,
    resume: bool,
    on_status: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], StopRequest | None],
    factories: Factories,
    deadlines: Deadlines,
) -> StopKind:
    """`run_on_ray` inside a session that is open already."""
    import ray

    if resume:
        end_left(run.logs_dir / "actors.json", coordinator_name(run.path), deadlines.end_s)
    coordinator = _start(run, resume, factories, deadlines)
    ended = coordinator.run.remote()
    sent: StopRequest | None = None
    try:
        while not ray.wait([ended], timeout=STATUS_EVERY_S)[0]:
            request = should_stop()
            if request is not None and request != sent:
                coordinator.stop.remote(request.reason, request.hard)
                sent = request
            try:
                on_status(ray.get(coordinator.status.remote(), timeout=STATUS_S))
            except ray.exceptions.GetTimeoutError:
                _log.warning("the coordinator of %s has not answered for %.0f s", run.path, STATUS_S)
            except ray.exceptions.RayActorError:
                # It ended between two calls; `ended` says how.
                continue
        kind = StopKind(ray.get(ended))
        on_status(ray.get(coordinator.status.remote(), timeout=STATUS_S))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, CoharnessError):
            raise error.cause from error
        raise CoharnessError(
            f"the run in {run.path} broke: {error.cause!r}; go on with `coharness resume {run.path}` once it is mended"
        ) from error
    except ray.exceptions.RayActorError as error:
        raise CoharnessError(
            f"the coordinator of {run.path} died; nothing is lost, go on with `coharness resume {run.path}`"
        ) from error
    finally:
        # Ray ends what the coordinator owns.
        end_actors({"coordinator": coordinator}, deadlines.end_s)
    return kind


def _start(run: RunDir, resume: bool, factories: Factories, deadlines: Deadlines) -> Any:
    import ray

    name = coordinator_name(run.path)
    try:
        coordinator = (
            ray.remote(Coordinator)
            .options(
                name=name,
                namespace=NAMESPACE,
                lifetime="detached",
                max_restarts=0,
                num_cpus=0,
                runtime_env={"env_vars": thread_env(1)},
            )
            .remote(str(run.path), resume, factories, deadlines)
        )
    except ValueError:
        raise PreflightError(
            f"{run.path} is being driven by the actor {name} on this cluster; stop that run, "
            f"or take it over with `coharness resume {run.path}`"
        ) from None
    try:
        ray.get(coordinator.ready.remote(), timeout=START_S)
    except ray.exceptions.ActorDiedError as error:
        raise PreflightError(f"the coordinator of {run.path} did not start: {cause_of(error)}") from error
    except ray.exceptions.GetTimeoutError:
        ray.kill(coordinator, no_restart=True)
        raise PreflightError(f"the coordinator of {run.path} did not start within {START_S:.0f} s") from None
    return coordinator
