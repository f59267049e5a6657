"""The trainer actor: runs training, merging and repair jobs with the runner that the loop builds; one job at a time.

It reads episodes through the replay actor and publishes weights to the run directory itself, so neither passes through the
coordinator. Driven by `actors.slots`.
"""

from typing import Any

from actors.options import ActorSpec, log_to, resolve
from actors.replay import RemoteReplayStore
from actors.watchdog import Watchdog
from coharness.records.errors import Boundary, boundary
from coharness.records.training import Job, JobResult


class TrainerActor:
    """One trainer in a process of its own."""

    def __init__(self, spec: ActorSpec, replay: Any) -> None:
        log_to(spec.path, spec.name)
        self._watchdog = Watchdog(spec)
        store = RemoteReplayStore(replay, spec.deadlines.replay_s)
        self._runner = resolve(spec.factories.jobs)(spec.load_config(), spec.path, store)

    def ready(self) -> None:
        """Answered once the trainer is built."""
        self._watchdog.heard()

    def run(self, job: Job) -> JobResult:
        """The end of the job; what the runner could not attribute itself is a BoundaryError(TRAINING)."""
        self._watchdog.heard()
        with boundary(Boundary.TRAINING):
            result: JobResult = self._runner.run(job)
        self._watchdog.heard()
        return result
