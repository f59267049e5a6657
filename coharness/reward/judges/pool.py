"""Several endpoints by their health: the fastest healthy one first, a failing one left alone for a while, then tried once.

An endpoint that fails three times in a row is closed for a second, twice as long each time up to a minute; after that one call
probes it. Invariant: a call goes to exactly one endpoint, and each failure is counted where it happened.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coharness.records.errors import ConfigError
from coharness.reward.judges.client import CallError, CallFailure, ChatClient, Completion

FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
SMOOTHING = 0.2
Clock = Callable[[], float]
Sleep = Callable[[float], None]


@dataclass(slots=True)
class _Health:
    failures: int = 0
    pauses: int = 0
    closed_until: float = 0.0
    probing: bool = False
    in_flight: int = 0
    latency_s: float = 0.0
    calls: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointState:
    """How an endpoint stands, for status pages and logs."""

    base: str
    calls: int
    failed: int
    latency_s: float
    is_open: bool
    "Whether calls may go to it now."


class EndpointPool:
    """Completions from whichever endpoint is fit; safe in threads."""

    def __init__(
        self,
        clients: Sequence[ChatClient],
        *,
        attempts: int = 3,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        if not clients:
            raise ConfigError("reward.judge.endpoints is empty; name at least one base address")
        self._clients = tuple(clients)
        self._health = [_Health() for _ in clients]
        self._lock = threading.Lock()
        self._attempts = attempts
        self._clock = clock
        self._sleep = sleep

    @property
    def model(self) -> str:
        """The model's name, the same at all endpoints."""
        return self._clients[0].model

    def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any], on_call: Callable[[], None]
    ) -> Completion:
        """One completion, from another endpoint after each failure.

        Args:
            messages: of the call.
            schema: that the answer must have.
            on_call: is told of each call before it is made; may raise to forbid it.

        Raises:
            CallError: the last failure, after all attempts or one that no attempt would mend.
        """
        last = CallError(CallFailure.REFUSED, "every endpoint is closed after failures")
        for attempt in range(self._attempts):
            index = self._pick()
            if index is None:
                if attempt + 1 < self._attempts:
                    self._sleep(FIRST_PAUSE_S)
                continue
            try:
                on_call()
            except BaseException:
                self._release(index)
                raise
            started = self._clock()
            try:
                completion = self._clients[index].complete(messages, schema=schema)
            except CallError as error:
                self._done(index, started, failed=error.failure.may_retry)
                last = error
                if not error.failure.may_retry:
                    raise
                if attempt + 1 < self._attempts and error.wait_s:
                    self._sleep(error.wait_s)
            else:
                self._done(index, started, failed=False)
                return completion
        raise last

    def states(self) -> list[EndpointState]:
        """How each endpoint stands."""
        with self._lock:
            now = self._clock()
            return [
                EndpointState(
                    base=client.base,
                    calls=health.calls,
                    failed=health.failed,
                    latency_s=round(health.latency_s, 4),
                    is_open=health.closed_until <= now,
                )
                for client, health in zip(self._clients, self._health, strict=True)
            ]

    def _pick(self) -> int | None:
        with self._lock:
            now = self._clock()
            fit = [i for i, h in enumerate(self._health) if h.closed_until <= now and not h.probing]
            if not fit:
                return None
            # One that is due for a probe gets one call; failing it costs a retry, not a judgment.
            due = [i for i in fit if self._health[i].failures >= FAILURES_TO_OPEN]
            index = due[0] if due else min(fit, key=lambda i: self._load(i))
            health = self._health[index]
            health.probing = bool(due)
            health.in_flight += 1
            return index

    def _release(self, index: int) -> None:
        with self._lock:
            self._health[index].in_flight -= 1
            self._health[index].probing = False

    def _load(self, index: int) -> tuple[float, int]:
        health = self._health[index]
        return (health.in_flight + 1) * max(health.latency_s, 1e-3) * (1 + health.failures), index

    def _done(self, index: int, started: float, *, failed: bool) -> None:
        with self._lock:
            health, now = self._health[index], self._clock()
            health.in_flight -= 1
            health.probing = False
            health.calls += 1
            if not failed:
                took = now - started
                health.latency_s = (
                    took if not health.latency_s else health.latency_s + SMOOTHING * (took - health.latency_s)
                )
                health.failures = health.pauses = 0
                return
            health.failed += 1
            health.failures += 1
            if health.failures >= FAILURES_TO_OPEN:
                pause = min(FIRST_PAUSE_S * 2**health.pauses, LONGEST_PAUSE_S)
                health.pauses += 1
                health.closed_until = now + pause
