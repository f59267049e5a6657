"""A scripted OpenAI-compatible server on loopback: what judges are tested against, no model anywhere.

    with ScriptedServer(fair_judge(lambda question, candidate: len(candidate) > 10)) as server:
        client = ChatClient(base=server.base, model="scripted")

A script gets the parsed request and returns the text of the answer, or a `Reply` to fail in a chosen way.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the server that is not simply a completion."""

    status: int = 200
    body: bytes | None = None
    "Sent as it is instead of a chat completion."
    text: str = ""
    "Content of a chat completion."
    delay_s: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    "Whether the connection ends in the middle of the body."
    finish_reason: str = "stop"


Script = Callable[[dict[str, Any]], str | Reply]


class ScriptedServer:
    """The server; a context manager. `requests` holds all that was asked, with the headers."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self._script = script
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                request = json.loads(body)
                owner.requests.append(request)
                owner.headers.append(dict(self.headers.items()))
                answer = owner._script(request)
                reply = answer if isinstance(answer, Reply) else Reply(text=answer)
                if reply.delay_s:
                    time.sleep(reply.delay_s)
                payload = _chat_body(request, reply) if reply.body is None else reply.body
                try:
                    self.send_response(reply.status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(payload)))
                    for name, value in reply.headers:
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(payload[: len(payload) // 2] if reply.cut else payload)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # a client that gave up is part of what is tested
                if reply.cut:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base(self) -> str:
        """Its base address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def _chat_body(request: dict[str, Any], reply: Reply) -> bytes:
    words = sum(len(m["content"].split()) for m in request["messages"])
    return json.dumps(
        {
            "object": "chat.completion",
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": reply.text},
                    "finish_reason": reply.finish_reason,
                }
            ],
            "usage": {"prompt_tokens": words, "completion_tokens": len(reply.text.split())},
        }
    ).encode()


Grade = Callable[[str, str], float]
"""(question, candidate) -> how good it is, in [0, 1]."""


def fair_judge(grade: Grade, *, position_bias: float = 0.0) -> Script:
    """A judge that reads the data as data and answers in the shape that is asked for.

    `position_bias` is added to the grade of what is shown first.
    """

    def script(request: dict[str, Any]) -> str:
        data = json.loads(request["messages"][-1]["content"])
        question, shown = data["question"]["text"], data["candidates"]
        grades = [grade(question, c["text"]) + position_bias * (place == 0) for place, c in enumerate(shown)]
        properties = request["response_format"]["json_schema"]["schema"]["properties"]
        if "order" in properties:
            order = sorted(range(len(shown)), key=lambda i: -grades[i])
            reasons = [{"id": c["id"], "reason": f"grade {g:.2f}"} for c, g in zip(shown, grades, strict=True)]
            return _dump(data, candidates=reasons, order=[shown[i]["id"] for i in order])
        names = properties["criteria"]["items"]["properties"]["name"]["enum"]
        if "better" in properties:
            gap = grades[0] - grades[1]
            better = "tie" if abs(gap) < 1e-9 else shown[0 if gap > 0 else 1]["id"]
            entries = [{"name": n, "reason": "compared both", "better": better} for n in names]
            return _dump(data, criteria=entries, reason="compared both", better=better)
        labels = _labels(request)
        entries = []
        for name in names:
            own = labels[name]
            place = min(int(min(max(grades[0], 0.0), 1.0) * len(own)), len(own) - 1)
            entries.append({"name": name, "reason": f"grade {grades[0]:.2f}", "choice": own[place]})
        return _dump(data, criteria=entries)

    return script


def _labels(request: dict[str, Any]) -> dict[str, list[str]]:
    """Labels of each criterion from worst to best, as the instructions list them."""
    found = {}
    for line in request["messages"][0]["content"].splitlines():
        if line.startswith("- ") and "Choices from worst to best: " in line:
            name = line[2:].partition(":")[0]
            found[name] = line.rpartition("Choices from worst to best: ")[2].rstrip(".").split(", ")
    return found


def _dump(data: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"boundary": data["boundary"], **fields})
