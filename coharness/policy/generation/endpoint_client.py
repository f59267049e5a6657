"""Many JSON requests to one HTTP endpoint at once, with deadlines, typed failures, and retries of what infrastructure broke.

Owns the connections. A refused request (4xx) is never sent again: the same bytes would be refused again. A failed connection, a
cut answer, 429 and 5xx are sent again, later each time and as the server's Retry-After asks, as long as the deadline allows. How
long is a function of the attempt alone, so no random state is touched.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import aiohttp

from coharness.records.errors import Boundary, BoundaryError

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500
_QUOTED: Final = 300


class EndpointRefused(BoundaryError):
    """The endpoint understood the request and refuses it; sent again, it would be refused again."""


class EndpointUnavailable(BoundaryError):
    """The endpoint or the way to it failed, at every attempt or until the deadline."""


class EndpointLate(BoundaryError):
    """The deadline passed while the endpoint was at work."""


class EndpointAborted(BoundaryError):
    """The request was withdrawn."""


Failure = EndpointRefused | EndpointUnavailable | EndpointLate | EndpointAborted


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    path: str
    "Below the root of the API, e.g. `completions`."
    body: Mapping[str, Any]
    deadline_s: float
    "From the start of the batch it is sent in, waiting for its turn and retries included."


@final
class EndpointClient:
    """Sends batches of calls; one batch at a time."""

    def __init__(self, url: str, *, api_key: str | None, concurrency: int, max_attempts: int) -> None:
        """Connect to nothing yet.

        Args:
            url: Root of the API.
            api_key: Sent as a bearer token; None sends none.
            concurrency: Calls in flight at once.
            max_attempts: How often a call is sent at most.

        Raises:
            ValueError: the URL is not one of HTTP.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"an endpoint's url begins with http:// or https://, got {url!r}")
        self._root = url.rstrip("/")
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._concurrency = concurrency
        self._max_attempts = max_attempts
        self._runner = asyncio.Runner()
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def send(self, calls: Sequence[Call]) -> list[dict[str, Any] | Failure]:
        """The answers, or what became of the call, in the order of the calls."""
        return self._runner.run(self._send(calls))

    def abort(self) -> None:
        """Withdraw the batch in flight, from any thread; its unfinished calls end as EndpointAborted."""
        with contextlib.suppress(RuntimeError):  # Closed: nothing is in flight.
            self._runner.get_loop().call_soon_threadsafe(self._cancel)

    def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            self._runner.run(self._session.close())
            self._session = None
        self._runner.close()

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _send(self, calls: Sequence[Call]) -> list[dict[str, Any] | Failure]:
        if self._session is None:
            # Each call has a deadline of its own over all its attempts.
            self._session = aiohttp.ClientSession(
                headers=self._headers, timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0)
            )
        started = asyncio.get_running_loop().time()
        turns = asyncio.Semaphore(self._concurrency)
        tasks = [
            asyncio.create_task(self._within(self._session, turns, call, started + call.deadline_s)) for call in calls
        ]
        self._tasks = set(tasks)
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._tasks = set()
        answers: list[dict[str, Any] | Failure] = []
        for result in results:
            if isinstance(result, asyncio.CancelledError):
                answers.append(EndpointAborted(Boundary.GENERATION, "the request was withdrawn"))
            elif isinstance(result, dict | Failure):
                answers.append(result)
            else:
                raise result
        return answers

    async def _within(
        self, session: aiohttp.ClientSession, turns: asyncio.Semaphore, call: Call, until: float
    ) -> dict[str, Any] | Failure:
        last = ""
        try:
            async with asyncio.timeout_at(until), turns:
                for attempt in range(self._max_attempts):
                    answer, last, pause_s = await self._attempt(session, call)
                    if answer is not None:
                        return answer
                    if attempt + 1 < self._max_attempts:
                        await asyncio.sleep(max(pause_s, min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)))
        except TimeoutError:
            if last:
                message = f"{self._root}/{call.path} failed until the deadline of {call.deadline_s:g} s: {last}"
                return EndpointUnavailable(Boundary.GENERATION, message)
            return EndpointLate(
                Boundary.DEADLINE, f"{self._root}/{call.path} did not answer within {call.deadline_s:g} s"
            )
        return EndpointUnavailable(
            Boundary.GENERATION, f"{self._root}/{call.path} failed {self._max_attempts} times, at last: {last}"
        )

    async def _attempt(
        self, session: aiohttp.ClientSession, call: Call
    ) -> tuple[dict[str, Any] | EndpointRefused | None, str, float]:
        """An answer or a refusal; else None, what failed, and the pause that the server asks for in seconds."""
        try:
            async with session.post(f"{self._root}/{call.path}", json=call.body) as response:
                text = await response.text()
                if response.status == _TOO_MANY or response.status >= _SERVER_ERRORS:
                    return None, f"status {response.status}: {text[:_QUOTED]}", _retry_after(response.headers)
                if not response.ok:
                    message = f"{self._root}/{call.path} refuses with status {response.status}: {text[:_QUOTED]}"
                    return EndpointRefused(Boundary.GENERATION, message), "", 0.0
        except (aiohttp.ClientError, ConnectionError) as error:
            return None, f"{type(error).__name__}: {error}", 0.0
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            return None, f"an answer that is no JSON object: {text[:_QUOTED]!r}", 0.0
        return answer, "", 0.0


def _retry_after(headers: Mapping[str, str]) -> float:
    with contextlib.suppress(ValueError):
        return max(0.0, float(headers.get("Retry-After", "0")))
    return 0.0  # A date; the usual pause will do.
