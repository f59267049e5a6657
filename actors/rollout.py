"""The rollout actor: runs batches with the worker that the loop builds, and hands the bodies to the replay actor.

A batch is one call: its outcomes come back in the answer, its episodes go straight to the replay actor, and the answer is
given only once they are on disk there. Driven by `actors.slots`.
"""

from typing import Any

from actors.options import ActorSpec, log_to, resolve
from actors.replay import RemoteReplayStore
from actors.watchdog import Watchdog
from coharness.records.codec import decode, encode
from coharness.records.errors import Boundary, boundary
from coharness.records.protocols import RolloutWorker
from coharness.records.work import BatchResult, WorkBatch


class RolloutActor:
    """One rollout worker in a process of its own."""

    def __init__(self, spec: ActorSpec, replay: Any) -> None:
        log_to(spec.path, spec.name)
        self._watchdog = Watchdog(spec)
        self._replay = RemoteReplayStore(replay, spec.deadlines.replay_s)
        self._worker: RolloutWorker = resolve(spec.factories.rollout)(spec.load_config(), spec.path, spec.name)

    def ready(self) -> None:
        """Answered once the worker is built."""
        self._watchdog.heard()

    def run(self, encoded: list[Any]) -> list[Any]:
        """Outcomes of all items of a WorkBatch, as a BatchResult; both as `coharness.records.codec` writes them.

        Raises:
            BoundaryError: WORKER where the worker itself broke, REPLAY where the episodes could not be kept.
        """
        self._watchdog.heard()
        batch: WorkBatch = decode(WorkBatch, encoded)
        with boundary(Boundary.WORKER):
            result, table = self._worker.run(batch)
        if table.num_rows:
            with boundary(Boundary.REPLAY):
                self._replay.append(table)
        self._watchdog.heard()
        answer: list[Any] = encode(BatchResult, result)
        return answer
