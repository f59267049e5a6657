"""Asking a verifier about a batch's answers: one after the other, or several at once where each keeps one waiting.

A verifier that calls a service costs a batch the sum of all its waits if it is asked in turn, and about the longest one if it is
asked at once. Invariants: what is said of an answer does not depend on how many are asked at once; a failed check is raised where
its result is read, so that it stays with its own group. Driven by the rollout worker.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from coharness.records.protocols import Check, Verifier
from coharness.records.task import Task


class Checks:
    """A verifier, asked by up to `concurrency` threads."""

    def __init__(self, verifier: Verifier, concurrency: int) -> None:
        self._verifier = verifier
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="check") if concurrency > 1 else None

    def ask(self, task: Task, answer: str) -> Callable[[], Check]:
        """Begin to check an answer, or, one at a time, get ready to; the result is read by calling what is returned."""
        check = partial(self._verifier.check, task.verifier, task.question, task.answer, answer)
        return check if self._pool is None else self._pool.submit(check).result

    def close(self) -> None:
        """End the verifier; checks that have not begun are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._verifier.close()
