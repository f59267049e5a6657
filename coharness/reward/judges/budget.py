"""What judging may cost: calls and tokens, counted where they are spent and refused before they are."""

import threading

from coharness.reward.judges.judgment import Cost


class BudgetSpent(Exception):
    """No further paid call is allowed; what was to be judged abstains."""


class Budget:
    """A shared allowance; safe in threads. Tokens are known after a call, so the last calls may overrun by what they return."""

    def __init__(self, *, max_calls: int, max_tokens: int) -> None:
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._calls = 0
        self._tokens_in = 0
        self._tokens_out = 0
        self._lock = threading.Lock()

    def take_call(self) -> None:
        """Count one call that is about to be made.

        Raises:
            BudgetSpent: it may not be made.
        """
        with self._lock:
            if self._calls >= self._max_calls:
                raise BudgetSpent(f"the budget of {self._max_calls} judge calls is spent; raise reward.judge.max_calls")
            if self._tokens_in + self._tokens_out >= self._max_tokens:
                raise BudgetSpent(
                    f"the budget of {self._max_tokens} judge tokens is spent; raise reward.judge.max_tokens"
                )
            self._calls += 1

    def add_tokens(self, tokens_in: int, tokens_out: int) -> None:
        """Count what a call used."""
        with self._lock:
            self._tokens_in += tokens_in
            self._tokens_out += tokens_out

    @property
    def spent(self) -> Cost:
        """Calls and tokens so far."""
        with self._lock:
            return Cost(calls=self._calls, tokens_in=self._tokens_in, tokens_out=self._tokens_out)
