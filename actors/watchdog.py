"""Ends a worker process that no coordinator speaks to any more, so that no run leaves orphans on a cluster.

A call from the coordinator counts as hearing it. In silence a thread pings the coordinator by name and leaves the process
when that fails for `hearing_s`, or when the coordinator that answers belongs to another epoch. Ray ends actors when their
owner dies; this covers what Ray does not see: a cut network, an owner that hangs.
"""

import logging
import os
import threading
import time

from actors.options import NAMESPACE, ActorSpec

_log = logging.getLogger(__name__)
EXIT_CODE = 70


class Watchdog:
    """Listens for the coordinator of `spec`; does nothing where the spec names none."""

    def __init__(self, spec: ActorSpec) -> None:
        self._spec = spec
        self._heard = time.monotonic()
        if spec.coordinator is not None:
            threading.Thread(target=self._watch, args=(spec.coordinator,), name="watchdog", daemon=True).start()

    def heard(self) -> None:
        """The coordinator spoke."""
        self._heard = time.monotonic()

    def _watch(self, coordinator: str) -> None:
        hearing_s = self._spec.deadlines.hearing_s
        pause = threading.Event()
        while True:
            pause.wait(hearing_s / 6)
            silent_s = time.monotonic() - self._heard
            if silent_s < hearing_s / 3:
                continue
            answer = _ping(coordinator, hearing_s / 6)
            if answer == self._spec.epoch:
                self.heard()
            elif answer is not None or silent_s > hearing_s:
                why = f"it serves epoch {answer}" if answer is not None else f"it has been silent for {silent_s:.0f} s"
                _log.error("%s of epoch %d leaves %s: %s", self._spec.name, self._spec.epoch, coordinator, why)
                # A worker may be deep in native code; nothing it holds needs an orderly end.
                os._exit(EXIT_CODE)


def _ping(coordinator: str, timeout_s: float) -> int | None:
    """The epoch that the coordinator serves, None where it does not answer."""
    import ray

    try:
        handle = ray.get_actor(coordinator, namespace=NAMESPACE)
        epoch: int = ray.get(handle.ping.remote(), timeout=timeout_s)
    except (ValueError, ray.exceptions.RayError):
        return None
    return epoch
