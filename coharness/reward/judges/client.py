"""One call to one OpenAI-compatible endpoint: typed failures, a deadline over the whole call, a bound on what is read.

Redirects are not followed and nothing but the configured address is ever contacted. The standard library's client is enough: a
judgment takes seconds, and a pool of threads keeps a few dozen in flight.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from coharness.records.errors import ConfigError
from coharness.reward.judges.secrets import redacted

MAX_BODY_BYTES = 4 * 2**20


class CallFailure(StrEnum):
    """Why a call gave no answer."""

    REFUSED = "refused"
    "No connection."
    TIMEOUT = "timeout"
    "Not done within the deadline."
    BROKEN = "broken"
    "The connection ended in the middle, or what came is no answer of this interface."
    RATE = "rate"
    "The endpoint asked to wait (429)."
    SERVER = "server"
    "The endpoint failed (5xx)."
    REQUEST = "request"
    "The endpoint refuses the request as it is (4xx); asking again would not help."

    @property
    def may_retry(self) -> bool:
        """Whether another call may succeed."""
        return self is not CallFailure.REQUEST


class CallError(Exception):
    """A failed call; the message holds no secret."""

    def __init__(self, failure: CallFailure, message: str, *, wait_s: float | None = None) -> None:
        super().__init__(failure, message)
        self.failure = failure
        self.message = message
        self.wait_s = wait_s
        "What the endpoint asked to wait, in seconds."


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What came back."""

    text: str
    tokens_in: int
    tokens_out: int
    finished: bool
    "Whether the model ended by itself; a text that was cut off is no answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatClient:
    """Calls `<base>/chat/completions`; stateless, safe in threads."""

    base: str
    "Such as http://127.0.0.1:8000/v1."
    model: str
    key: str | None = None
    timeout_s: float = 60.0
    max_output_tokens: int = 768

    def __post_init__(self) -> None:
        parts = urlsplit(self.base)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ConfigError(
                f"the endpoint {redacted(self.base)!r} is no base address; expected http(s)://host:port/v1 without user or query"
            )

    def __repr__(self) -> str:
        return f"ChatClient({self.base!r}, model={self.model!r})"

    def complete(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any], temperature: float = 0.0
    ) -> Completion:
        """One completion under a JSON schema.

        Raises:
            CallError: there is none.
        """
        body = {
            "model": self.model,
            "messages": list(messages),
            "temperature": temperature,
            "max_tokens": self.max_output_tokens,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": True, "schema": schema},
            },
        }
        status, headers, payload = self._post("/chat/completions", json.dumps(body).encode())
        if status == 429:
            raise CallError(CallFailure.RATE, "the endpoint asks to wait", wait_s=_retry_after(headers))
        if status >= 500:
            raise CallError(CallFailure.SERVER, f"the endpoint answered {status}", wait_s=_retry_after(headers))
        if status != 200:
            said = redacted(payload[:300].decode(errors="replace"), self.key)
            raise CallError(CallFailure.REQUEST, f"the endpoint answered {status}: {said}")
        return _completion(payload)

    def _post(self, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(self.base)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        deadline = time.monotonic() + self.timeout_s
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, parts.port, timeout=self.timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self.timeout_s)
        try:
            connection.connect()
            if isinstance(connection.sock, socket.socket):
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.request("POST", parts.path.rstrip("/") + path, body=body, headers=headers)
            response = connection.getresponse()
            payload = _read(connection, response, deadline)
            return response.status, dict(response.getheaders()), payload
        except TimeoutError as error:
            raise CallError(CallFailure.TIMEOUT, f"no answer within {self.timeout_s:g} s") from error
        except (ConnectionRefusedError, socket.gaierror) as error:
            raise CallError(CallFailure.REFUSED, f"no connection: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise CallError(CallFailure.BROKEN, redacted(f"{type(error).__name__}: {error}", self.key)) from error
        finally:
            connection.close()


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, up to the deadline: a server that sends a byte a minute must not hold a worker."""
    pieces: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left)
        piece = response.read1(65_536)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise CallError(CallFailure.BROKEN, f"the answer has more than {MAX_BODY_BYTES} bytes")


def _completion(payload: bytes) -> Completion:
    try:
        data = json.loads(payload)
        choice = data["choices"][0]
        text = choice["message"]["content"]
        usage = data.get("usage") or {}
        counts = [usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise CallError(CallFailure.BROKEN, f"what came is no chat completion ({type(error).__name__})") from error
    if text is None:
        text = ""
    if not isinstance(text, str) or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise CallError(CallFailure.BROKEN, "what came is no chat completion (content or usage of another kind)")
    return Completion(
        text=text, tokens_in=counts[0], tokens_out=counts[1], finished=choice.get("finish_reason") in (None, "stop")
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                return min(max(float(value), 0.0), 60.0)
            except ValueError:
                return None
    return None
