"""A small OpenAI-compatible server over any generator, on the loopback, with failures to order.

Serves `completions` (prompts of token ids; `echo` with log-probabilities where a score is given), `chat/completions`, `models`.
A test hands it a list of failures; each request takes the next one first. Everything it was sent is kept for looking at.
"""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, final

from coharness.records.episode import StopReason
from coharness.records.policy import WeightsRef
from coharness.records.protocols import GenerationRequest, Generator

Fault = int | str
"""A status to answer with, or `drop` (hang up unanswered), `garbage` (no JSON), `hang` (answer when the server closes)."""


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that hung up, which deadlines make them do."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@final
class EndpointServer:
    """A context manager: serves from entry to exit."""

    def __init__(
        self,
        generator: Generator,
        weights: WeightsRef,
        *,
        faults: Iterable[Fault] = (),
        score: Callable[[Sequence[int]], list[float]] | None = None,
        is_bare: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        """Serve `weights` with `generator`.

        Args:
            generator: Writes the completions, one request at a time.
            weights: The model that is served.
            faults: What goes wrong with the first requests, in order.
            score: Log-probabilities of a prompt's tokens after its first; None serves no echo.
            is_bare: Answer with text alone, as an endpoint without token ids and log-probabilities does.
            retry_after_s: Sent with the faults.
        """
        self.requests: list[tuple[str, dict[str, Any]]] = []
        "Path and body of each request, as they came."
        self.keys: list[str | None] = []
        "The Authorization header of each."
        self._generator = generator
        self._weights = weights
        self._faults = deque(faults)
        self._score = score
        self._is_bare = is_bare
        self._retry_after_s = retry_after_s
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Root of the API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request, without faults.

        Raises:
            ValueError: there is no such path, or the body asks for what is not served.
        """
        match path:
            case "/v1/completions":
                return {"object": "text_completion", "model": body["model"], "choices": [self._completion(body)]}
            case "/v1/chat/completions":
                text = "\n".join(str(message["content"]) for message in body["messages"])
                choice = self._completion({**body, "prompt": self._generator.codec.encode_prompt(text)})
                message = {"role": "assistant", "content": choice.pop("text")}
                scores = (choice.pop("logprobs", None) or {}).get("token_logprobs")
                content = None if scores is None else {"content": [{"logprob": score} for score in scores]}
                return {"object": "chat.completion", "choices": [{**choice, "message": message, "logprobs": content}]}
            case _:
                raise ValueError(f"no such path: {path}")

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = [int(i) for i in body["prompt"]]
        if body.get("echo"):
            if self._score is None:
                raise ValueError("this server does not echo")
            return {"index": 0, "text": "", "finish_reason": "length",
                    "logprobs": {"token_logprobs": [None, *self._score(prompt), -1.0]}}  # fmt: skip
        request = GenerationRequest(
            prompt_ids=tuple(prompt),
            weights=self._weights,
            seed=int(body.get("seed", 0)),
            position=0,
            temperature=float(body.get("temperature", 1.0)),
            max_new_tokens=int(body["max_tokens"]),
        )
        with self._lock:
            (written,) = self._generator.generate([request])
        choice: dict[str, Any] = {
            "index": 0,
            "text": self._generator.codec.decode(written.output_ids),
            "finish_reason": "stop" if written.stop_reason is StopReason.EOS else "length",
        }
        if not self._is_bare:
            choice["logprobs"] = {"token_logprobs": written.logprobs}
            choice["token_ids"] = written.output_ids
        return choice

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(200, json.dumps({"object": "list", "data": [{"id": "base", "object": "model"}]}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.requests.append((self.path, body))
                    server.keys.append(self.headers.get("Authorization"))
                    fault = server._faults.popleft() if server._faults else None
                match fault:
                    case "hang":
                        server._closing.wait(60)
                        self.close_connection = True
                    case "drop":
                        self.close_connection = True
                    case "garbage":
                        self._send(200, "<html>")
                    case int():
                        self._send(fault, json.dumps({"error": {"message": f"fault {fault}"}}))
                    case _:
                        try:
                            self._send(200, json.dumps(server.answer(self.path, body)))
                        except (ValueError, KeyError) as error:
                            self._send(400, json.dumps({"error": {"message": str(error)}}))

            def _send(self, status: int, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if status != 200 and server._retry_after_s is not None:
                    self.send_header("Retry-After", str(server._retry_after_s))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """What a test wants to see stands in `requests`."""

        return Handler
