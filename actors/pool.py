"""Actors that do one piece of work at a time, under a deadline: what pools on Ray share.

Owns waiting, deadlines, and putting an actor in the place of one that died or was too late. What an actor is and what its answer
means is up to the pool that builds on it. Invariants: no wait is longer than it was asked to be; every actor is ended by its
handle.
"""

import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

_log = logging.getLogger(__name__)
Work = TypeVar("Work")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Place(Generic[Work]):
    """An actor, and what it is doing."""

    actor: Any
    work: Work | None = None
    ref: Any = None
    attempt: int = 0
    deadline: float = 0.0
    memory: str = ""
    "What the pool remembers of this actor; empty again for one that takes its place."


class ActorPool(ABC, Generic[Work, Answer]):
    """Places for actors of one kind in the Ray session that is open."""

    def __init__(self, size: int, deadline_s: float, max_attempts: int) -> None:
        """Start the actors.

        Args:
            size: how many.
            deadline_s: for one piece of work; its actor is ended then.
            max_attempts: how often work is given to an actor before it has failed.
        """
        self._deadline_s, self._max_attempts = deadline_s, max_attempts
        self._places: list[Place[Work]] = [Place(actor=self._start()) for _ in range(size)]
        self._ready: list[Answer] = []

    def poll(self, timeout_s: float) -> list[Answer]:
        """What has come in; waits at most this long for the first."""
        import ray

        until = time.monotonic() + timeout_s
        while not self._ready:
            busy = {place.ref: place for place in self._places if place.work is not None}
            now = time.monotonic()
            if not busy or now >= until:
                break
            due = min([until, *(place.deadline for place in busy.values())])
            done, _ = ray.wait(list(busy), num_returns=1, timeout=max(0.0, due - now))
            for ref in done:
                self._receive(busy[ref])
            for place in self._places:
                if place.work is not None and time.monotonic() >= place.deadline:
                    self._replace(place, f"did not end within {self._deadline_s:g} s")
        found, self._ready = self._ready, []
        return found

    def close(self) -> None:
        """End every actor by its handle."""
        import ray

        for place in self._places:
            ray.kill(place.actor, no_restart=True)

    def _free(self) -> list[Place[Work]]:
        return [place for place in self._places if place.work is None]

    def _send(self, place: Place[Work], work: Work, attempt: int) -> None:
        place.work, place.attempt = work, attempt
        place.deadline = time.monotonic() + self._deadline_s + self._grace_s(place)
        place.ref = self._ask(place.actor, work, attempt)

    def _receive(self, place: Place[Work]) -> None:
        import ray

        work = place.work
        assert work is not None, "an actor without work answers nothing"
        try:
            value = ray.get(place.ref)
        except ray.exceptions.RayError as error:
            self._broken(error)
            self._replace(place, f"died ({type(error).__name__})")
            return
        place.work, place.ref = None, None
        self._ready.append(self._answered(place, work, value))

    def _replace(self, place: Place[Work], why: str) -> None:
        import ray

        work, attempt = place.work, place.attempt
        _log.warning("an actor %s; another one takes its place", why)
        ray.kill(place.actor, no_restart=True)
        place.actor, place.work, place.ref, place.memory = self._start(), None, None, ""
        self._replaced(place)
        if work is None:
            return
        if attempt < self._max_attempts:
            self._send(place, work, attempt + 1)
        else:
            self._ready.append(self._failed(work, f"its actor {why}, {attempt} times"))

    @abstractmethod
    def _start(self) -> Any:
        """A new actor."""

    @abstractmethod
    def _ask(self, actor: Any, work: Work, attempt: int) -> Any:
        """The reference of an actor's answer to come."""

    @abstractmethod
    def _answered(self, place: Place[Work], work: Work, value: Any) -> Answer:
        """What an actor's value means."""

    @abstractmethod
    def _failed(self, work: Work, error: str) -> Answer:
        """The answer to work that was tried as often as it may be."""

    def _broken(self, error: Exception) -> None:
        """Look at what came in an answer's place; raise where another actor would not do better."""

    def _replaced(self, place: Place[Work]) -> None:
        """A new actor stands at this place."""

    def _grace_s(self, place: Place[Work]) -> float:
        """Seconds that this place has over the deadline."""
        return 0.0
