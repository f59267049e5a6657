"""Ray actors behind plain faces: starts the three kinds, and turns what Ray raises into what the fleet knows.

The one module that holds untyped handles of rollout and trainer actors; every actor gets a name that says run, epoch, worker
and life, and is written to `logs/actors.json` so that a later epoch can end what is left of this one.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from actors.options import NAMESPACE, ActorSpec, actor_name, thread_env
from actors.replay import ReplayActor, first_line
from actors.rollout import RolloutActor
from actors.slots import WorkerDied
from actors.trainer import TrainerActor
from coharness.records.codec import decode, encode
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.work import BatchResult, WorkBatch

_log = logging.getLogger(__name__)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class RayWorker:
    """One life of a rollout or trainer actor; see `actors.slots.Worker`."""

    actor: Any
    send: Callable[[Any], Any] = _same
    "How work is written for the call."
    receive: Callable[[Any], Any] = _same
    "How a result is read from the answer."

    def ready(self) -> Any:
        """A reference that is done once the worker is built."""
        return self.actor.ready.remote()

    def run(self, work: Any) -> Any:
        """A reference that is done with the result of `work`."""
        return self.actor.run.remote(self.send(work))

    def result(self, ref: Any) -> Any:
        """The value of a done reference."""
        import ray

        try:
            answer = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, BoundaryError):
                raise error.cause from None
            raise BoundaryError(Boundary.WORKER, f"{type(error.cause).__name__}: {error.cause}") from None
        except ray.exceptions.RayActorError as error:
            raise WorkerDied(cause_of(error)) from None
        except ray.exceptions.RayError as error:
            # The answer itself was lost, with its node.
            raise BoundaryError(Boundary.WORKER, f"the answer was lost: {first_line(error)}") from None
        return None if answer is None else self.receive(answer)

    def kill(self) -> None:
        """End the process at once."""
        import ray

        ray.kill(self.actor, no_restart=True)


@dataclass(slots=True, kw_only=True)
class Starter:
    """Starts the actors of one fleet and keeps the record of them."""

    spec: ActorSpec
    "What all workers share; its name is replaced."
    num_cpus: int
    "Cores of a rollout actor, and the bound on threads of either."
    record: Path
    trainer_cpus: int = 1
    "Cores of a trainer, its further processes included."
    _lives: dict[str, int] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _actors: dict[str, Any] = field(default_factory=dict)

    def replay(self) -> Any:
        """The replay actor; Ray restarts it in place, so its handle stays good."""
        return self._start(ReplayActor, "replay", {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0})

    def rollout(self, name: str, replay: Any) -> RayWorker:
        """One life of a rollout worker."""
        actor = self._start(RolloutActor, name, {"num_cpus": self.num_cpus, "max_restarts": 0}, replay)
        # Pickling a batch of records takes ten times as long as the codec, in the one process that serves all workers.
        return RayWorker(actor, send=partial(encode, WorkBatch), receive=partial(decode, BatchResult))

    def trainer(self, name: str, replay: Any) -> RayWorker:
        """One life of a trainer."""
        return RayWorker(self._start(TrainerActor, name, {"num_cpus": self.trainer_cpus, "max_restarts": 0}, replay))

    def _start(self, kind: type, name: str, options: Mapping[str, Any], *handles: Any) -> Any:
        import ray

        self._lives[name] = self._lives.get(name, -1) + 1
        spec = replace(self.spec, name=name)
        full_name = actor_name(spec, self._lives[name])
        # Recorded first: an actor that exists and is not in the record could outlive its epoch.
        self._names.append(full_name)
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self.record.write_text(json.dumps({"epoch": spec.epoch, "actors": self._names}, indent=1))
        actor = (
            ray.remote(kind)
            .options(
                name=full_name,
                namespace=NAMESPACE,
                runtime_env={"env_vars": thread_env(max(1, self.num_cpus))},
                **options,
            )
            .remote(spec, *handles)
        )
        self._actors[name] = actor
        return actor

    def end_all(self, deadline_s: float) -> list[str]:
        """End every actor by its handle and wait until they are gone; returns the names of those that are not."""
        actors, self._actors = self._actors, {}
        return end_actors(actors, deadline_s)


def end_actors(actors: Mapping[str, Any], deadline_s: float) -> list[str]:
    """End actors by their handles, in order, and wait until they are gone; returns the names of those that are not."""
    import ray

    until = time.monotonic() + deadline_s
    left = dict(actors)
    for actor in left.values():
        ray.kill(actor, no_restart=True)
    while left and time.monotonic() < until:
        # A call to an actor that is being killed fails once its process is gone; before that it may be answered.
        probes = {name: actor.ready.remote() for name, actor in left.items()}
        ray.wait(list(probes.values()), num_returns=len(probes), timeout=max(0.0, until - time.monotonic()))
        left = {name: left[name] for name, probe in probes.items() if not _is_gone(probe)}
    return sorted(left)


def end_left(record: Path, coordinator: str, deadline_s: float) -> list[str]:
    """End what is left of a run's older epochs, by the names that were recorded; returns those that were still there."""
    import ray

    # The coordinator first, so that it replaces none of the others.
    names = [coordinator]
    if record.is_file():
        names += json.loads(record.read_text())["actors"]
    left = {}
    for name in names:
        try:
            left[name] = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            continue
    if left:
        _log.warning("ending what is left of an older epoch: %s", ", ".join(left))
    if alive := end_actors(left, deadline_s):
        _log.error("after %.0f s these actors are not known to be gone: %s", deadline_s, ", ".join(alive))
    return list(left)


def _is_gone(probe: Any) -> bool:
    import ray

    try:
        ray.get(probe, timeout=0)
    except ray.exceptions.RayActorError:
        return True
    except ray.exceptions.RayError:
        return False
    return False


def cause_of(error: Any) -> str:
    """Why an actor died: its constructor's error where it has one, else Ray's first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if "Error" in lines[-1] else lines[0]
